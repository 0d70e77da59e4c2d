"""Baselines: measurements of proven runs, stored by identity, and refused if any part of the identity differs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pytest_dsocr.base.errors import MachineError
from pytest_dsocr.base.files import seal, unseal, write_whole
from pytest_dsocr.base.reading import Format, is_regular
from pytest_dsocr.timing.identity import HOST, OF_TIMES, file_name, key, machine_name
from pytest_dsocr.timing.rounds import Measured

FEWEST_GOOD = 10
SHOWN = 4
SEAL_BYTES = 96
"""The end of a file, with its seal."""


class NoBaselineError(MachineError):
    """There is no baseline to compare a run with; the message states why, and what to do."""


@dataclass(frozen=True)
class Baseline(Measured):
    """An accepted measurement, as in its file."""

    parity: Mapping[str, Any]
    """Result of the comparison before the times were taken: ``verdict``, ``comparisons``, ``reference``."""
    made: date
    command: str
    commit: str | None
    format: Literal[1] = 1

    @property
    def age_days(self) -> int:
        """Days since it was made."""
        return (date.today() - self.made).days

    def write(self, folder: Path) -> Path:
        """Write it into the folder of its machine; return the file.

        Raises:
            DsocrError: if it cannot be written.
        """
        path = folder / file_name(self.identity)
        path.parent.mkdir(parents=True, exist_ok=True)
        content = asdict(self) | {"made": str(self.made)}
        head = {name: content.pop(name) for name in ("format", "made", "command", "commit", "parity")}
        return write_whole(path, seal(head | content))


def check_right(parity: Mapping[str, Any]) -> None:
    """Raise ``NoBaselineError`` if the page is read wrongly, so that its times are worthless."""
    if not parity.get("passes"):
        raise NoBaselineError(
            f"no baseline was made: what the subject reads is not right ({parity.get('verdict', 'not compared')}); "
            "a wrong answer may be fast, so fix it first"
        )


def check_rounds(measured: Measured) -> None:
    """Raise ``NoBaselineError`` where too few rounds are good for a baseline."""
    if len(measured.good) < FEWEST_GOOD:
        raise NoBaselineError(
            f"no baseline was made: {len(measured.good)} of {len(measured.rounds)} rounds are good, {FEWEST_GOOD} are "
            f"needed ({measured.why_spoilt}); let the machine come to rest and run it again"
        )


def find(folders: Sequence[Path], identity: Mapping[str, Any], most_days: float) -> Baseline:
    """Find the baseline of a measurement. Unreadable ones are skipped, and named if no other is found.

    Args:
        folders: searched in this order.
        identity: of the run; see :func:`key`.
        most_days: the greatest age.

    Raises:
        NoBaselineError: if there is none, or it is damaged or too old; the message names the nearest one.
    """
    wanted = key(identity)
    near: list[tuple[list[str], Path]] = []
    passed_over: list[str] = []
    own = file_name(identity)
    for path in sorted(_files(folders), key=lambda one: not one.match(own)):  # others are not in the way of one's own
        try:
            baseline = read(path)
        except NoBaselineError as error:
            if path.match(own):
                raise
            passed_over.append(f"; passed over: {error}")
            continue
        differing = _differences(wanted, key(baseline.identity))
        if not differing:
            return _fresh(baseline, path, most_days)
        near.append((differing, path))
    raise NoBaselineError(_nearest(identity, near, folders) + "".join(passed_over))


def find_counts(folders: Sequence[Path], identity: Mapping[str, Any]) -> Baseline | None:
    """Find the newest baseline whose counts apply here, whatever host took its times; exact quantities do not age."""
    wanted = key(identity, OF_TIMES)
    fitting = (one for path in _files(folders) if (one := _readable(path)) and key(one.identity, OF_TIMES) == wanted)
    return max(fitting, key=lambda one: one.made, default=None)


def differing(counts: Baseline, identity: Mapping[str, Any]) -> str:
    """Say in what the machine that a baseline was made on differs from this one."""
    return "; ".join(_differences(key(identity), key(counts.identity)))


def has_any(folders: Sequence[Path], machine: Mapping[str, Any]) -> bool:
    """Return whether there is any baseline of this very host; one that cannot be read was promised as well."""
    host = {name: str(machine.get(name.removeprefix("machine."))) for name in HOST}
    here = (_readable(path) for path in _files(folders) if path.parent.name == machine_name(machine))
    return any(one is None or host.items() <= key(one.identity).items() for one in here)


def read(path: Path) -> Baseline:
    """Read a baseline; raise ``NoBaselineError`` if it is damaged or of another format."""
    return BASELINES.read(path)


HOW = "--dsocr-baseline-update"
BASELINES = Format(Baseline, f"restore it from version control, or make it again, {HOW}", NoBaselineError, unseal)


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    """Yield every baseline; other JSON files of the folder, such as figures, are none."""
    for folder in folders:
        for path in sorted(folder.glob("*/*.json")):
            if path.name != "calibration.json" and is_regular(path) and _is_baseline(BASELINES.read_bytes(path)):
                yield path


def _readable(path: Path) -> Baseline | None:
    with suppress(NoBaselineError):
        return read(path)
    return None


def _is_baseline(data: bytes) -> bool:
    """Return whether a file is a baseline, though damaged at one end, and not figures of another kind."""
    return data.startswith(b'{\n "format"') or b'\n "sha256": "' in data[-SEAL_BYTES:]


def _fresh(baseline: Baseline, path: Path, most_days: float) -> Baseline:
    if baseline.age_days < -1:  # a day, for time zones
        raise BASELINES.fault(path, f"is dated {baseline.made}, which is yet to come")
    if baseline.age_days <= most_days:
        return baseline
    raise NoBaselineError(
        f"{path} is {baseline.age_days} days old, and {most_days:g} are allowed (--dsocr-baseline-days); machines "
        f"change, so make it again, {HOW}"
    )


def _differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    names = dict.fromkeys([*wanted, *found])
    return [
        f"{name} {found.get(name, 'unknown')}, here {wanted.get(name, 'unknown')}"
        for name in names
        if wanted.get(name) != found.get(name)
    ]


def _nearest(identity: Mapping[str, Any], near: list[tuple[list[str], Path]], folders: Sequence[Path]) -> str:
    what = f"no baseline of {file_name(identity).removesuffix('.json')}"
    if not near:
        return f"{what}: {', '.join(map(str, folders))} hold none; accept this run's times as one, {HOW}"
    differing, path = min(near, key=lambda one: len(one[0]))
    more = f", and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
    return (
        f"{what} as it is here; the nearest, {path}, has {'; '.join(differing[:SHOWN])}{more}; accept this one, {HOW}"
    )
