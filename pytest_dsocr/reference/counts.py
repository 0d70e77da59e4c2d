"""The vendor's FLOPs by case and stage: one sealed file for each checkpoint and attention, beside its recordings.

They follow from the code and from sizes alone. What is counted on one device therefore stands for every device, dtype
and Pillow, and the file says of each case where it was counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypedDict

from pytest_dsocr.foundation.files import locked, seal, write_whole
from pytest_dsocr.foundation.reading import Count
from pytest_dsocr.foundation.words import count
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.provenance import Provenance, slug
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError
from pytest_dsocr.reference.recorded_case import FORMAT, Described, fault, recorded, traits

COUNT_WITH = "dsocr vendor record --only-flops"


class _Entry(TypedDict):
    case: Described
    made: Count
    """Which of the file's provenances, from 0 on."""
    flops: dict[str, Count]


class _File(TypedDict):
    format: Literal[1]
    made: list[Provenance]
    cases: dict[str, _Entry]


FLOPS = recorded(_File)


@dataclass(frozen=True)
class CountedCase:
    """What one case costs the vendor's code, and who says so."""

    described: Mapping[str, Any]
    """See :meth:`pytest_dsocr.observation.case.Case.to_json`."""
    origin: Provenance
    flops: Mapping[str, int]
    """By stage; ``decode`` is the first step's."""

    def differences(self, made: Provenance) -> list[str]:
        """Say in which respects that FLOPs depend on it was counted otherwise than ``made``, one line each."""
        origin = self.origin
        counted = replace(
            made,
            checkpoint_sha256=origin.checkpoint_sha256,
            vendor_sha256=origin.vendor_sha256,
            attention=origin.attention,
        )
        return counted.differences(made)


@dataclass(frozen=True, eq=False)
class Counts:
    """A file of counted cases, each byte of which was checked."""

    path: Path
    cases: Mapping[str, CountedCase]
    """By id."""

    @classmethod
    def open(cls, path: Path) -> Counts:
        """Read a file; where there is none, nothing is counted.

        Raises:
            ReferenceFaultError: where it is damaged, or of another format.
        """
        if not path.exists():
            return cls(path, {})
        content: Any = FLOPS.read(path)
        made = [Provenance.from_json(one) for one in content["made"]]
        try:
            cases = {
                case_id: CountedCase(entry["case"], made[entry["made"]], entry["flops"])
                for case_id, entry in content["cases"].items()
            }
        except IndexError as error:
            raise fault(path, f"names a making that it does not hold: there are {len(made)}") from error
        return cls(path, cases)

    def find(self, case: Case) -> CountedCase | None:
        """Return what was counted of this page, prompt and preset, whatever the ceiling of new tokens."""
        wanted = _sizes(case.to_json())
        return next((one for one in self.cases.values() if _sizes(one.described) == wanted), None)

    def encode(self) -> bytes:
        """Return the file's content, the same bytes each time; cases that were counted alike name one making."""
        made: list[Provenance] = []
        cases = {}
        for case_id, one in sorted(self.cases.items()):
            if one.origin not in made:
                made.append(one.origin)
            cases[case_id] = {"case": one.described, "made": made.index(one.origin), "flops": one.flops}
        return seal({"format": FORMAT, "made": [origin.to_json() for origin in made], "cases": cases})


class Counting:
    """A file of counts in the making; made by :func:`counting`."""

    def __init__(self, path: Path, made: Provenance) -> None:
        self.path, self.made = path, made
        self.notes: list[str] = []
        """What was there and is given up, and why."""
        found = Counts.open(path).cases
        stale = {case_id: differences for case_id, one in found.items() if (differences := one.differences(made))}
        if stale:
            why = "; ".join(next(iter(stale.values())))
            self.notes.append(f"FLOPs of {count(len(stale), 'case')} counted before are given up: {why}")
        self._cases = {case_id: one for case_id, one in found.items() if case_id not in stale}

    def missing(self, cases: Sequence[Case], *, again: bool = False) -> list[Case]:
        """Return those of ``cases`` that are not counted yet; all of them to count them ``again``."""
        there = Counts(self.path, self._cases)
        return [case for case in cases if again or there.find(case) is None]

    def add(self, case: Case, flops: Mapping[str, int]) -> None:
        """Keep what was counted of ``case``, on the disk when this returns; raise ``DsocrError`` where it is full."""
        self._cases[case.id] = CountedCase(case.to_json(), self.made, flops)
        write_whole(self.path, Counts(self.path, self._cases).encode())


@contextmanager
def counting(folder: Path, made: Provenance) -> Iterator[Counting]:
    """Open the counts of ``made`` in a checkpoint's ``folder`` of recordings for writing, and keep others off them.

    Raises:
        DsocrError: where another process is at them, the folder cannot be written, or the file there is damaged.
    """
    path = counts_file(folder, made.attention)
    with locked(path.with_name(f".{path.name}.lock")):
        yield Counting(path, made)


def counts_file(folder: Path, attention: str) -> Path:
    """Return where the FLOPs are that belong to the recordings in a checkpoint's ``folder``."""
    return folder / f"flops-{slug(attention)}.json"


def recorded_flops(case: Case, recordings: Sequence[tuple[Path, Provenance]]) -> Mapping[str, int]:
    """Return a case's FLOPs by stage from beside the first of ``recordings`` that has them.

    Args:
        case: whichever its ceiling of new tokens.
        recordings: the folder and the making of each.

    Raises:
        NotRecordedError: where none has.
        ReferenceFaultError: where a file is damaged, or was counted of other weights or other files of the vendor's.
    """
    for folder, made in recordings:
        counts = Counts.open(counts_file(folder.resolve().parent, made.attention))
        if (found := counts.find(case)) is None:
            continue
        if differences := found.differences(made):
            raise ReferenceFaultError(
                f"{counts.path} holds FLOPs of {case.id} that were counted otherwise than {folder} was made "
                f"({'; '.join(differences)}); count them anew with: {COUNT_WITH}"
            )
        return found.flops
    raise NotRecordedError(
        f"{recordings[0][0].parent} holds no FLOPs of {case.id}; count them with: {COUNT_WITH}, "
        "or give the vendor's folder to count them live"
    )


def find_counted(case: Case, places: Sequence[Path], checkpoint_sha256: str, attention: str) -> CountedCase | None:
    """Find what is counted of a case with these weights in folders of recordings, from whichever of the vendor's files.

    Raises:
        ReferenceFaultError: where a file of this attention is damaged.
    """
    name = counts_file(Path(), attention).name
    found = [Counts.open(path).find(case) for place in places for path in sorted(place.glob(f"*/{name}"))]
    return next((one for one in found if one and one.origin.checkpoint_sha256 == checkpoint_sha256), None)


def _sizes(described: Mapping[str, Any]) -> dict[str, str]:
    """Return what FLOPs depend on, and with it the page's content."""
    return {name: value for name, value in traits(described).items() if name != "max_new_tokens"}
