"""Answers of a live reference, kept from run to run under everything that they depend on.

What is kept of a case is a recorded case, with its tensors. An answer that is damaged is asked anew.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_dsocr.contract.image import resampling
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import sha256, write_whole
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.observation.provenance import Key, Provenance
from pytest_dsocr.reference.environment import check_vendor_folder
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.protocol import ReferenceFaultError
from pytest_dsocr.reference.recorded_case import CASES, RecordedCase, tensors_beside, traits

MOST_BYTES = 4 * 2**30
"""Some forty pages of the full size in Gundam; what was used longest ago goes first."""
OWN_CODE = ("contract", "engine", "observation", "reference")
"""Rooms whose code takes part in what is said of the vendor's."""
ANEW = "ask anew with --dsocr-fresh"
OWN = Path(__file__).parents[1]


@dataclass(frozen=True)
class Store:
    """The answers of one making.

    Args:
        root: the folder of all that are kept.
        making: everything that answers depend on but the case, as JSON values.
        most_bytes: how much there may be in ``root``.
    """

    root: Path
    making: Mapping[str, Any]
    most_bytes: int = MOST_BYTES

    @property
    def folder(self) -> Path:
        """Where those of this making are."""
        return self.root / _digest(self.making)

    def path(self, case: Case) -> Path:
        """Return where the answer to a case is, or would be."""
        return self.folder / f"{_digest(traits(case.to_json()))}.json"

    def find(self, case: Case) -> RecordedCase | None:
        """Return the answer to a case; None where there is none.

        Raises:
            ReferenceFaultError: where it is damaged.
        """
        path = self.path(case)
        if not path.exists():
            return None
        found = RecordedCase.read(path)
        with suppress(OSError):  # another run may have made room
            os.utime(path)
        return found

    def origin(self) -> Provenance | None:
        """Return how those that there are were made; None where there are none."""
        for path in sorted(self.folder.glob("*.json")):
            with suppress(ReferenceFaultError):
                made: Any = CASES.read(path)["origin"]
                return Provenance.from_json(made)
        return None

    def add(self, case: Case, answer: RecordedCase) -> None:
        """Keep an answer, and make room for it; raise ``DsocrError`` where the disk does not take it."""
        path, (data, tensors) = self.path(case), answer.encode(keep_values=True)
        with suppress(OSError):  # reported where the files cannot be written
            self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(tensors_beside(path), tensors)
        write_whole(path, data)
        with suppress(FileNotFoundError):  # another run may be making room as well
            self._make_room()

    def _make_room(self) -> None:
        """Delete what was used longest ago; the newest answer stays in any case."""
        total = sum(path.stat().st_size for path in self.root.glob("*/*"))
        oldest_first = sorted(self.root.glob("*/*.json"), key=lambda path: path.stat().st_mtime_ns)
        for path in oldest_first[:-1]:
            if total <= self.most_bytes:
                return
            for file in (path, tensors_beside(path)):
                total -= file.stat().st_size
                file.unlink()


class KeptReference:
    """A live reference that is not asked again what it was asked before; fulfils ``Reference``.

    Args:
        live: started at once where none of its answers are kept, else when it is first needed.
        store: where its answers are.
        on_note: takes a sentence about what was used, or could not be.
        fresh: ask everything anew, and keep that.
    """

    def __init__(
        self, live: LiveReference, store: Store, on_note: Callable[[str], None], *, fresh: bool = False
    ) -> None:
        self.live, self.store, self._note, self._fresh = live, store, on_note, fresh
        self.provenance = (None if fresh else store.origin()) or live.start()
        """How answers are made."""

    def observe(self, case: Case) -> Observation:
        """Return what is kept of a case, or what the live reference does with it, which is then kept.

        Raises:
            ReferenceFaultError: where it cannot answer.
        """
        if kept := self._read_kept(case):
            self._note(f"what the live reference was asked before it is not asked again: {self.store.root}; {ANEW}")
            return replace(kept.observation, case_id=case.id)
        seen = self.live.observe(case)
        try:
            self.store.add(case, RecordedCase(case.to_json(), self.live.provenance, seen))
        except DsocrError as error:
            self._note(f"the live reference's answers are not kept: {error}")
        return seen

    def flops(self, case: Case) -> Mapping[str, int]:
        """Return each stage's floating-point operations; never kept."""
        return self.live.flops(case)

    def close(self) -> None:
        """End the live reference, where it was started."""
        self.live.close()

    def _read_kept(self, case: Case) -> RecordedCase | None:
        if self._fresh:
            return None
        try:
            return self.store.find(case)
        except ReferenceFaultError as error:
            why = str(error).partition(";")[0]
            self._note(f"a kept answer of the live reference is damaged, and asked anew: {why}")
            return None


def making_of(vendor: Path, key: Key, versions: Mapping[str, str]) -> dict[str, Any]:
    """Return everything that the answers of the vendor's code depend on but the case.

    Args:
        vendor: the folder with the vendor's files.
        key: of the weights and how they are run.
        versions: of Python and of the packages in the vendor's environment.
    """
    return {
        "vendor": {name: sha256((vendor / name).read_bytes()) for name in check_vendor_folder(vendor).vendor.files},
        "checkpoint": key.checkpoint_sha256,
        "way": key.way,
        "versions": dict(versions),
        "resampling": resampling(),
        "own": {
            path.relative_to(OWN).as_posix(): sha256(path.read_bytes())
            for room in OWN_CODE
            for path in sorted((OWN / room).rglob("*.py"))
        },
    }


def _digest(value: Mapping[str, Any]) -> str:
    return sha256(json.dumps(value, sort_keys=True).encode())[:32]
