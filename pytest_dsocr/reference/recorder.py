"""Write or extend a recording, safely against interruption at any moment.

Cases are collected in a work folder next to the target, ``.<name>.recording``. Each file is complete or absent. A case
is done when its JSON exists, which is written last and contains the hash of its tensors. An empty JSON marks a case to
record again. When all cases are done, the manifest is written, the target is renamed to ``.<name>.old``, the work
folder is renamed to the target, and the old folder is deleted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import locked, seal, sha256, sync_folder, write_whole
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.reference.goldens import MANIFEST
from pytest_dsocr.reference.protocol import ReferenceFaultError
from pytest_dsocr.reference.recorded_case import FORMAT, RecordedCase, case_files, read_recorded
from pytest_dsocr.reference.recording import Recording, folder_names, recordings_of


@contextmanager
def recorder(golden: Path, provenance: Provenance) -> Iterator[Recorder]:
    """Open the recording of ``provenance`` in ``golden`` for writing, and lock it against other recorders.

    Raises:
        DsocrError: if it is locked, the folder cannot be written, or the present recording is damaged.
    """
    provenance = _as_named_in(golden, provenance)
    home = golden / str(provenance.key)
    with locked(home.with_name(f".{home.name}.lock")):
        yield Recorder(golden, provenance)


class Recorder:
    """An unfinished recording, opened by :func:`recorder`."""

    def __init__(self, golden: Path, provenance: Provenance) -> None:
        self.provenance = provenance
        self.notes: list[str] = []
        """Reasons for discarding present cases."""
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
        """Return the cases that must still be recorded.

        Args:
            cases: cases to be in the recording, besides those that it contains.
            again: record all of them again. If this is interrupted, the next recorder continues it.

        Raises:
            DsocrError: if two pages would be recorded under one name.
        """
        pages: dict[str, Path] = {}
        for case in cases:
            other = pages.setdefault(case.id.casefold(), case.page)  # some file systems ignore case
            if other != case.page:
                raise DsocrError(f"{other} and {case.page} would both be recorded as {case.id}; rename one")
        for case in cases if again else ():
            self._made.pop(case.id, None)
            self._write(f"{case.id}.json", b"")
        return [case for case in cases if not self._holds(case)]

    def add(self, case: Case, observation: ReferenceResult) -> None:
        """Write the result of ``case`` to the work folder.

        Raises:
            ReferenceFaultError: if the result comes from another reference than the recording.
            DsocrError: if it cannot be written.
        """
        assert observation.provenance, "a reference returns its provenance"
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
        """Complete the recording with its former cases, move it to its folder, and return it verified."""
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
        """Copy the old recording's other cases to the work folder, then write the manifest."""
        for case_id, case in self._old.cases.items() if self._old else ():
            if case_id not in self._made:
                for name in reversed(case_files(case_id)):
                    self._write(name, read_recorded(self.folder / name))
                self._made[case_id] = case
        self._keep_only({name for case_id in self._made for name in case_files(case_id)})
        self._write(MANIFEST, _manifest(self._work, self.provenance, self._made))

    def _holds(self, case: Case) -> bool:
        recorded = self._made.get(case.id)
        marked = (self._work / f"{case.id}.json").exists()
        if recorded is None and self._old and not marked:
            recorded = self._old.cases.get(case.id)
        return recorded is not None and recorded.described == case.to_json()

    def _same_making(self, old: Recording | None) -> Recording | None:
        differences = old.provenance.differences(self.provenance) if old else []
        if old and differences:
            self.notes.append(f"{len(old.cases)} recorded cases are discarded: {'; '.join(differences)}")
        return None if differences else old

    def _tidied(self) -> dict[str, RecordedCase]:
        """Return the cases of an interrupted recorder. Keep its marks, and delete its other files."""
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
            self.notes.append(f"{len(given_up)} unfinished cases are discarded: {'; '.join(given_up[0])}")
        self._keep_only(marks | {name for case_id in made for name in case_files(case_id)})
        return made

    def _keep_only(self, names: set[str]) -> None:
        for path in self._work.glob("*"):
            if path.name not in names:
                path.unlink()

    def _write(self, name: str, content: bytes) -> None:
        self._work.mkdir(exist_ok=True)
        write_whole(self._work / name, content)


def _manifest(folder: Path, provenance: Provenance, cases: Mapping[str, RecordedCase]) -> bytes:
    """Return the manifest of ``cases`` with files in ``folder``."""
    entries = {}
    for case_id, case in sorted(cases.items()):
        contents = {name: read_recorded(folder / name) for name in case_files(case_id)}
        files = {name: {"bytes": len(content), "sha256": sha256(content)} for name, content in contents.items()}
        entries[case_id] = {"case": case.described, "files": files}
    return seal({"format": FORMAT, "provenance": provenance.to_json(), "cases": entries})


def _as_named_in(golden: Path, provenance: Provenance) -> Provenance:
    """Return ``provenance`` with the name that its checkpoint has in the folder, if it was recorded there."""
    names = [made.checkpoint for made in recordings_of(golden, provenance.checkpoint_sha256)]
    known = provenance.checkpoint in names or not names
    return provenance if known else replace(provenance, checkpoint=names[0])


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _recover(folder: Path) -> None:
    """Undo an interrupted renaming, or delete the old folder after a complete one."""
    aside = _aside(folder)
    if aside.exists() and folder.exists():
        shutil.rmtree(aside)
    elif aside.exists():
        aside.rename(folder)
