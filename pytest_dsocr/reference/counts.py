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
from pytest_dsocr.reference.recorded_case import CEILING, FORMAT, Described, fault, recorded, traits


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
        own = self.origin
        counted = replace(
            made, checkpoint_sha256=own.checkpoint_sha256, vendor_sha256=own.vendor_sha256, attention=own.attention
        )
        return counted.differences(made)


@dataclass(frozen=True, eq=False)
class Counts:
    """A file of counted cases, each byte of which was checked."""

    path: Path
    cases: dict[str, CountedCase]
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

    def missing(self, cases: Sequence[Case]) -> list[Case]:
        """Return those of ``cases`` that are not counted yet."""
        return [case for case in cases if self.find(case) is None]

    def discard_others(self, made: Provenance) -> str:
        """Return up what was counted otherwise than ``made``; return why, in a sentence, where there was any."""
        stale = {case_id: differences for case_id, one in self.cases.items() if (differences := one.differences(made))}
        for case_id in stale:
            del self.cases[case_id]
        return "".join(
            f"FLOPs of {count(len(stale), 'case')} counted before are given up: {'; '.join(differences)}"
            for differences in [*stale.values()][:1]
        )

    def add(self, case: Case, made: Provenance, flops: Mapping[str, int]) -> None:
        """Keep what was counted of ``case``, on the disk when this returns; raise ``DsocrError`` where it is full."""
        self.cases[case.id] = CountedCase(case.to_json(), made, flops)
        write_whole(self.path, self.encode())

    def encode(self) -> bytes:
        """Return the file's content, the same bytes each time; cases that were counted alike name one making."""
        made: list[Provenance] = []
        cases = {}
        for case_id, one in sorted(self.cases.items()):
            if one.origin not in made:
                made.append(one.origin)
            cases[case_id] = {"case": one.described, "made": made.index(one.origin), "flops": one.flops}
        return seal({"format": FORMAT, "made": [origin.to_json() for origin in made], "cases": cases})


@contextmanager
def counting(folder: Path, attention: str) -> Iterator[Counts]:
    """Open the counts in a checkpoint's ``folder`` of recordings for writing, and keep others off them.

    Raises:
        DsocrError: where another process is at them, the folder cannot be written, or the file there is damaged.
    """
    path = counts_file(folder, attention)
    with locked(path.with_name(f".{path.name}.lock")):
        yield Counts.open(path)


def counts_file(folder: Path, attention: str) -> Path:
    """Return where the FLOPs are that belong to the recordings in a checkpoint's ``folder``."""
    return folder / f"flops-{slug(attention)}.json"


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
    return {**traits(described), CEILING: ""}
