"""Answers of a live reference, kept from run to run under everything that they depend on, and asked one case ahead.

What is kept of a case is a recorded case, with its tensors. An answer that is damaged, or that was made otherwise than
the live reference answers now, is never used.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

from pytest_dsocr.contract.image import resampling
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import sha256, write_whole
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.observation.provenance import Key, Provenance
from pytest_dsocr.reference.environment import FILES
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.protocol import ReferenceFaultError
from pytest_dsocr.reference.recorded_case import CASES, RecordedCase, tensors_beside, traits

GRACE_S = 3.0
MOST_BYTES = 4 * 2**30
"""Some forty pages of the full size in Gundam; what was used longest ago goes first."""
OWN_CODE = ("contract", "engine", "observation", "reference")
"""Rooms whose code takes part in what is said of the vendor's."""
ANEW = "ask anew with --dsocr-fresh"
OWN = Path(__file__).parents[1]


class Ahead:
    """At most one answer that nobody has asked for yet; the reference itself is for one thread at a time."""

    def __init__(self, reference: LiveReference) -> None:
        self._reference = reference
        self._case: Case | None = None
        self._answer: Future[Observation] = Future()

    @property
    def live(self) -> LiveReference:
        """The reference, once it has nothing else to do."""
        with suppress(ReferenceFaultError):  # whoever asks about that case is told
            if self._case is not None:
                self._answer.result()
        return self._reference

    def begin(self, case: Case) -> None:
        """Have it work on ``case``, in a thread that ends with the process, whatever it waits for."""
        live, answer = self.live, Future[Observation]()
        placed = replace(case, page=case.page.absolute())  # the subject may go to another folder meanwhile
        self._case, self._answer = case, answer
        Thread(target=_ask, args=(live, placed, answer), name="dsocr-ahead", daemon=True).start()

    def observe(self, case: Case) -> Observation:
        """Return the answer that it works on, or ask now; raise as the reference does."""
        live, begun = self.live, self._case
        self._case = None
        return self._answer.result() if begun == case else live.observe(case)

    def close(self) -> None:
        """End the reference, also where it is at work."""
        if self._case is not None:
            self._reference.give_up()
            wait([self._answer], GRACE_S)
        self._reference.close()


def _ask(live: LiveReference, case: Case, answer: Future[Observation]) -> None:
    try:
        answer.set_result(live.observe(case))
    except BaseException as error:
        answer.set_exception(error)


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
        if traits(found.described) != traits(case.to_json()):
            raise ReferenceFaultError(f"{path} holds another case")
        with suppress(OSError):  # another run may have made room
            os.utime(path)
        return found

    def origin(self) -> Provenance | None:
        """Say how those that there are were made; None where there are none."""
        for path in sorted(self.folder.glob("*.json")):
            with suppress(ReferenceFaultError):
                made: Any = CASES.read(path)["origin"]
                return Provenance.from_json(made)
        return None

    def add(self, case: Case, answer: RecordedCase) -> None:
        """Keep an answer, and make room for it; raise ``DsocrError`` where the disk does not take it."""
        path, (data, tensors) = self.path(case), answer.encode(keep_values=True)
        with suppress(OSError):  # told where the files cannot be written
            self.folder.mkdir(parents=True, exist_ok=True)
        write_whole(tensors_beside(path), tensors)
        write_whole(path, data)
        self._make_room(path)

    def _make_room(self, newest: Path) -> None:
        files: dict[Path, os.stat_result] = {}
        for path in self.root.glob("*/*"):
            with suppress(FileNotFoundError):  # another run may have made room
                files[path] = path.stat()
        total = sum(one.st_size for one in files.values())
        oldest = sorted((path for path in files if path.suffix == ".json"), key=lambda path: files[path].st_mtime_ns)
        for path in oldest:
            if total <= self.most_bytes or path == newest:
                return
            total -= sum(files[one].st_size for one in (path, tensors_beside(path)) if one in files)
            for file in (path, tensors_beside(path)):
                file.unlink(missing_ok=True)


class KeptReference:
    """A live reference that is not asked again what it was asked before; fulfils ``Reference``.

    Args:
        live: starts when it is first needed, and is asked one case ahead.
        store: where its answers are.
        on_note: takes a sentence about what was used, or could not be.
        fresh: ask everything anew, and keep that.
    """

    def __init__(
        self, live: LiveReference, store: Store, on_note: Callable[[str], None], *, fresh: bool = False
    ) -> None:
        self.store, self._note, self._fresh = store, on_note, fresh
        self._ahead = Ahead(live)
        self._origin = None if fresh else store.origin()
        self._made: Provenance | None = self._origin
        self._coming: Mapping[Case, Case] = {}

    @property
    def live(self) -> LiveReference:
        """The live reference, once it has nothing else to do."""
        return self._ahead.live

    def expect(self, cases: Sequence[Case]) -> None:
        """Be ready, and have the first of ``cases`` worked on, then each while the subject works on the one before."""
        self._made = self._made or self.live.start()
        self._coming = dict(pairwise(cases))
        self._begin(next(iter(cases), None))

    @property
    def provenance(self) -> Provenance:
        """How answers are made; the live reference is started where none of its answers are there."""
        self._made = self._made or self.live.start()
        return self._made

    def observe(self, case: Case) -> Observation:
        """Return what is kept of a case, or what the live reference does with it, which is then kept.

        Raises:
            ReferenceFaultError: where it cannot answer, or answers otherwise than before under the same key.
        """
        kept = self._kept(case)
        if kept is None:
            seen = self._asked(case)
        else:
            self._note(f"what the live reference was asked before it is not asked again: {self.store.root}; {ANEW}")
            seen = replace(kept.observation, case_id=case.id)
        self._begin(self._coming.get(case))
        return seen

    def flops(self, case: Case) -> Mapping[str, int]:
        """Return each stage's floating-point operations; never kept."""
        return self.live.flops(case)

    def close(self) -> None:
        """End the live reference, where it was started."""
        self._ahead.close()

    def _asked(self, case: Case) -> Observation:
        seen = self._ahead.observe(case)
        self._made = self.live.provenance
        if differences := self._origin.differences(self._made) if self._origin else []:
            shutil.rmtree(self.store.folder, ignore_errors=True)
            raise ReferenceFaultError(
                f"the kept answers of the live reference were made otherwise than it answers now "
                f"({'; '.join(differences)}); they are deleted: run again"
            )
        try:
            self.store.add(case, RecordedCase(case.to_json(), self._made, seen))
        except DsocrError as error:
            self._note(f"the live reference's answers are not kept: {error}")
        return seen

    def _begin(self, case: Case | None) -> None:
        with suppress(DsocrError):  # a page that cannot be loaded is told when it is asked about
            if case is not None and (self._fresh or not self.store.path(case).exists()):
                self._ahead.begin(case)

    def _kept(self, case: Case) -> RecordedCase | None:
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
        "vendor": {name: sha256((vendor / name).read_bytes()) for name in FILES},
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
