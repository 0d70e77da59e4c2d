"""Make or extend a recording; a kill at any moment leaves the old one, the new one, or one that can be continued.

Cases are collected in a work folder beside the target, ``.<name>.recording``, each file whole or absent. A case's JSON
is written after its tensors and holds their hash, so that a case is done where its JSON says so; an empty JSON marks a
case that is to be made again. When all are there, the manifest is written, the target is moved aside to
``.<name>.old``, the work folder takes its place, and what was moved aside is deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import locked, sync_folder, write_whole
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.reference.protocol import ReferenceFaultError
from pytest_dsocr.reference.recorded_case import RecordedCase, case_files, read_recorded
from pytest_dsocr.reference.recording import MANIFEST, Recording, encode_manifest, folder_names, recordings_of


@contextmanager
def recorder(golden: Path, provenance: Provenance) -> Iterator[Recorder]:
    """Open the recording of ``provenance`` under ``golden`` for writing, and keep other recorders off it.

    Raises:
        DsocrError: where another recorder is at it, the folder cannot be written, or the recording there is damaged.
    """
    provenance = _as_named_in(golden, provenance)
    home = golden / str(provenance.key)
    with locked(home.with_name(f".{home.name}.lock")):
        yield Recorder(golden, provenance)


class Recorder:
    """A recording in the making; made by :func:`recorder`."""

    def __init__(self, golden: Path, provenance: Provenance) -> None:
        self.provenance = provenance
        self.notes: list[str] = []
        """What was there and is discarded, and why."""
        folders = [golden / name for name in folder_names(provenance)]
        for folder in folders:
            _recover(folder)
        there = {folder: Recording.open(folder) for folder in folders if folder.exists()}
        fitting = [folder for folder in there if there[folder].provenance.resampling == provenance.resampling]
        self.folder = (fitting or [folder for folder in folders if folder not in there])[0]
        self._work = self.folder.with_name(f".{self.folder.name}.recording")
        self._old = self._same_making(there.get(self.folder))
        self._made = self._tidied()

    def missing(self, cases: Sequence[Case], *, again: bool = False) -> list[Case]:
        """Return those of ``cases`` that are still to be made.

        Args:
            cases: what the recording shall hold, in addition to what it holds already.
            again: make all of them again: now or, where this is interrupted, in the next recorder.

        Raises:
            DsocrError: where two pages would be recorded under one name.
        """
        pages: dict[str, Path] = {}
        for case in cases:
            other = pages.setdefault(case.id.casefold(), case.page)  # some file systems know no upper case
            if other != case.page:
                raise DsocrError(f"{other} and {case.page} would both be recorded as {case.id}; rename one")
        for case in cases if again else ():
            self._made.pop(case.id, None)
            self._write(f"{case.id}.json", b"")
        return [case for case in cases if not self._holds(case)]

    def add(self, case: Case, observation: ReferenceResult) -> None:
        """Keep what was seen of ``case``.

        Raises:
            ReferenceFaultError: where another reference saw it than the one that the recording is of.
            DsocrError: where it cannot be written.
        """
        assert observation.provenance, "a reference says how it was made"
        seen_by = replace(observation.provenance, overrides=self.provenance.overrides)
        if differences := seen_by.differences(self.provenance):
            raise ReferenceFaultError(
                f"the reference changed while it was recorded ({'; '.join(differences)}); record again"
            )
        recorded = RecordedCase(case.to_json(), self.provenance, observation)
        content, tensors = recorded.encode()
        json_name, tensors_name = case_files(case.id)
        self._write(tensors_name, tensors)
        self._write(json_name, content)
        self._made[case.id] = recorded

    def publish(self) -> Recording:
        """Put the recording in its place, with the cases that it had before, and give it verified."""
        aside = _aside(self.folder)
        if self._made or not self._old:
            self._complete()
            if self.folder.exists():
                self.folder.rename(aside)
            self._work.rename(self.folder)
            sync_folder(self.folder.parent)
        for left in (aside, self._work):
            if left.exists():
                shutil.rmtree(left)
        return Recording.open(self.folder)

    def _complete(self) -> None:
        """Bring the old recording's other cases into the work folder, then the manifest."""
        for case_id, case in self._old.cases.items() if self._old else ():
            if case_id not in self._made:
                for name in reversed(case_files(case_id)):
                    self._write(name, read_recorded(self.folder / name))
                self._made[case_id] = case
        self._keep_only({name for case_id in self._made for name in case_files(case_id)})
        self._write(MANIFEST, encode_manifest(self._work, self.provenance, self._made))

    def _holds(self, case: Case) -> bool:
        recorded = self._made.get(case.id)
        marked = (self._work / f"{case.id}.json").exists()
        if recorded is None and self._old and not marked:
            recorded = self._old.cases.get(case.id)
        return recorded is not None and recorded.described == case.to_json()

    def _same_making(self, old: Recording | None) -> Recording | None:
        differences = old.provenance.differences(self.provenance) if old else []
        if old and differences:
            self.notes.append(f"{len(old.cases)} cases recorded before are given up: {'; '.join(differences)}")
        return None if differences else old

    def _tidied(self) -> dict[str, RecordedCase]:
        """Return the cases that an interrupted recorder made, and delete what else it left but its marks."""
        made, given_up = {}, []
        marks = {path.name for path in self._work.glob("*.json") if not path.stat().st_size}
        for path in sorted(self._work.glob("*.json")):
            if path.name in {*marks, MANIFEST}:
                continue
            try:
                case = RecordedCase.read(path)
            except ReferenceFaultError:
                continue
            if differences := case.origin.differences(self.provenance):
                given_up.append(differences)
            else:
                made[path.stem] = case
        if given_up:
            self.notes.append(f"{len(given_up)} unfinished cases are given up: {'; '.join(given_up[0])}")
        self._keep_only(marks | {name for case_id in made for name in case_files(case_id)})
        return made

    def _keep_only(self, names: set[str]) -> None:
        for path in self._work.glob("*"):
            if path.name not in names:
                path.unlink()

    def _write(self, name: str, content: bytes) -> None:
        self._work.mkdir(exist_ok=True)
        write_whole(self._work / name, content)


def _as_named_in(golden: Path, provenance: Provenance) -> Provenance:
    """Return ``provenance`` under the name that its checkpoint has in the folder, where there are recordings of it."""
    names = [made.checkpoint for made in recordings_of(golden, provenance.checkpoint_sha256)]
    known = provenance.checkpoint in names or not names
    return provenance if known else replace(provenance, checkpoint=names[0])


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _recover(folder: Path) -> None:
    """Undo half an exchange, or end one that lacked only its tidying up."""
    aside = _aside(folder)
    if aside.exists() and folder.exists():
        shutil.rmtree(aside)
    elif aside.exists():
        aside.rename(folder)
