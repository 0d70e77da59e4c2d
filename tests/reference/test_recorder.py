"""Tests of the recorder: kept cases, cases to record again, and its folder after a kill at every step."""

import io
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.records.case import Case
from pytest_dsocr.reference.goldens import MANIFEST
from pytest_dsocr.reference.protocol import ReferenceFaultError
from pytest_dsocr.reference.recorder import recorder
from tests.recordings import find_recording
from tests.reference.replay import HOME, MADE, Made, content_of, record

WORK = "synthetic-tiny/.cpu-float32-eager.recording"
OTHER_TORCH = replace(MADE, versions={**MADE.versions, "torch": "2.12.0"})
OLDER_PILLOW = replace(MADE, resampling="0123456789abcdef", versions={**MADE.versions, "pillow": "12.0.0"})


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return tmp_path / "golden"


def ids(cases: Sequence[Case]) -> list[str]:
    return [case.id for case in cases]


LATER = replace(MADE, date="2026-02-03", command="again")
ASKED = {  # of what was recorded first; how what is recorded then is made; whether again; which of the three are asked
    "the rest": (slice(0, 1), MADE, False, [1, 2]),
    "nothing that is there, made on another day": (slice(0, 3), LATER, False, []),
    "the named ones again": (slice(0, 3), LATER, True, [1, 2]),
    "all, with another torch": (slice(0, 3), OTHER_TORCH, False, [0, 1, 2]),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_is_missing_is_asked(name: str, made: Made, golden: Path, tmp_path: Path) -> None:
    before, made_by, again, asked = ASKED[name]
    record(golden, made.reference(), made.cases[before])
    files = {path: path.stat().st_mtime_ns for path in golden.rglob("*") if path.is_file()}
    reference = made.reference(provenance=made_by)
    recording = record(golden, reference, made.cases[1:] if again else made.cases, again=again)
    assert reference.asked == ids([made.cases[k] for k in asked])
    dates = {case_id: case.origin.date for case_id, case in recording.cases.items()}
    assert dates == {case.id: made_by.date if k in asked else MADE.date for k, case in enumerate(made.cases)}
    if not asked:
        assert files == {path: path.stat().st_mtime_ns for path in golden.rglob("*") if path.is_file()}
    if made_by is MADE:
        record(tmp_path / "at_once", made.reference(), made.cases)
        assert content_of(golden) == content_of(tmp_path / "at_once"), "the same as one made at once"


def test_a_reference_made_otherwise_says_why_it_gives_up(made: Made, golden: Path) -> None:
    record(golden, made.reference(), made.cases)
    with recorder(golden, OTHER_TORCH) as target:
        [note] = target.notes
        target.add(made.cases[0], made.reference(provenance=OTHER_TORCH).observe(made.cases[0]))
    assert note.startswith("3 recorded cases are discarded: versions.torch: 2.13.0 and 2.12.0")
    reference = made.reference()
    record(golden, reference, made.cases)
    assert reference.asked == [], "discarded unfinished cases hide no recorded ones"
    assert [path.name for path in (golden / HOME).parent.iterdir()] == ["cpu-float32-eager"]


def test_a_case_that_has_changed_is_made_anew(made: Made, golden: Path, tmp_path: Path) -> None:
    record(golden, made.reference(), made.cases)
    first, second, third = made.cases
    page = Path(shutil.copy(third.page, tmp_path / first.page.name))
    changed = [replace(first, page=page), replace(second, max_new_tokens=second.max_new_tokens + 1), third]
    reference = made.reference()
    recording = record(golden, reference, changed)
    assert reference.asked == [first.id, second.id]
    assert [recording.cases[case.id].described for case in changed] == [case.to_json() for case in changed]
    page = page.rename(page.with_name(page.name.upper()))
    with recorder(golden, MADE) as target, pytest.raises(DsocrError, match=r"TINY\.PNG would both be .* rename one"):
        target.missing([first, replace(first, page=page)])


def test_another_pillow_has_a_folder_of_its_own(made: Made, golden: Path) -> None:
    for made_by in (MADE, OLDER_PILLOW, MADE, OLDER_PILLOW):
        record(golden, made.reference(provenance=made_by), made.cases[:2])
    assert find_recording(golden, MADE.key, MADE.resampling).folder == golden / HOME
    older = find_recording(golden, MADE.key, OLDER_PILLOW.resampling)
    assert older.folder == golden / f"{HOME}-pillow-12"
    third = replace(OLDER_PILLOW, resampling="feed")
    assert record(golden, made.reference(provenance=third), made.cases[:1]).folder.name.endswith("-resampling-feed")


def test_a_reference_that_changes_on_the_way_is_refused(made: Made, golden: Path) -> None:
    reference = made.reference()
    with recorder(golden, MADE) as target:
        target.add(made.cases[0], reference.observe(made.cases[0]))
        reference.provenance = replace(MADE, vendor_sha256={"deepencoder.py": "ff" * 32})
        changed = r"changed while it was recorded \(vendor_sha256\.deepencoder\.py: .*record again"
        with pytest.raises(ReferenceFaultError, match=changed):
            target.add(made.cases[1], reference.observe(made.cases[1]))
    with recorder(golden, MADE) as target:
        assert ids(target.missing(made.cases)) == ids(made.cases[1:])


def test_one_recorder_at_a_time_and_none_at_a_damaged_recording(made: Made, golden: Path) -> None:
    with recorder(golden, MADE), pytest.raises(DsocrError, match=r"is at work on .*synthetic-tiny; wait"):
        record(golden, made.reference(), made.cases)
    damaged = record(golden, made.reference(), made.cases[:1]).folder / MANIFEST
    damaged.write_bytes(damaged.read_bytes()[:-9])
    before = content_of(golden)
    with pytest.raises(ReferenceFaultError, match=r"manifest\.json is damaged"):
        record(golden, made.reference(), made.cases)
    assert content_of(golden) == before


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_damaged_unfinished_case_is_made_anew(suffix: str, made: Made, golden: Path) -> None:
    with recorder(golden, MADE) as target:
        for case in made.cases:
            target.add(case, made.reference().observe(case))
    damaged = golden / WORK / f"{made.cases[1].id}{suffix}"
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    reference = made.reference()
    assert len(record(golden, reference, made.cases).cases) == 3
    assert reference.asked == [made.cases[1].id]


SCENARIOS = ("nothing", "one-case", "again")
"""Recorded cases before the killed recorder starts; for ``again`` all of them, which are recorded again."""
CHANGES = ("mkdir", "rename", "replace", "rmdir", "unlink")
CHUNK_BYTES = 16_384


class Chunked(io.FileIO):
    """A file that is written in steps of 16 KB."""

    def __init__(self, path: Path, mode: str, step: Callable[[], None]) -> None:
        super().__init__(path, mode)
        self.step = step

    def write(self, data: Any) -> int:
        self.step()
        return super().write(memoryview(data)[:CHUNK_BYTES]) or 0


@contextmanager
def copied_at_each_step(golden: Path, copies: Path) -> Iterator[None]:
    """Copy a folder in front of every step that changes what others read there: as a kill at that moment leaves it."""
    numbers, copying, usual = count(), Lock(), io.open

    def step() -> None:
        if copying.acquire(blocking=False):  # a copy is made in such steps as well
            shutil.copytree(golden, copies / str(next(numbers)))
            copying.release()

    def after_a_step(change: Callable[..., None]) -> Callable[..., None]:
        def changed(*given: Any, **how: Any) -> None:
            step()
            change(*given, **how)

        return changed

    def opened(file: Any, mode: str = "r", *given: Any, **how: Any) -> Any:
        if mode != "xb":
            return usual(file, mode, *given, **how)
        step()
        return io.BufferedWriter(Chunked(file, mode, step))

    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, after_a_step(getattr(os, name)))
        patch.setattr(io, "open", opened)
        patch.setattr(os, "fsync", lambda _: None)  # to wait for the disk changes nothing of what is read
        yield


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_kill_at_any_step_leaves_the_old_the_new_or_one_to_go_on_with(
    scenario: str, made: Made, golden: Path, tmp_path: Path
) -> None:
    cases, again = made.cases[:2], scenario == "again"
    golden.mkdir()
    if scenario != "nothing":
        record(golden, made.reference(), cases if again else cases[:1])
    old = content_of(golden)
    with copied_at_each_step(golden, tmp_path / "left"):
        record(golden, made.reference(), cases, again=again)
    record(tmp_path / "undisturbed", made.reference(), cases)
    left = sorted((tmp_path / "left").iterdir(), key=lambda folder: int(folder.name))
    new = content_of(tmp_path / "undisturbed")
    assert content_of(golden) == new
    assert len(left) > 4 * len(new), "the steps were not seen"
    readable = [can_be_read(one, old=old, new=new) for one in left]
    if old:
        assert readable.count(False) == 1, "nothing is to be read only between the two renames"
        with recorder(left[readable.index(False)], MADE):
            assert can_be_read(left[readable.index(False)], old=old, new=new), "the old is put back at once"
    made_anew = [go_on(one, made, cases) for one in left]
    assert all(content_of(one) == new for one in left)
    assert {*made_anew} == ({0, 1} if scenario == "one-case" else {0, 1, 2})


def can_be_read(golden: Path, *, old: dict[str, bytes], new: dict[str, bytes]) -> bool:
    """Whether there is a recording; it is then the old or the new one, to the byte."""
    try:
        folder = find_recording(golden, MADE.key, MADE.resampling).folder
    except ReferenceFaultError as error:
        if "holds no recording" not in str(error):
            raise
        return False
    found = {f"{HOME}/{name}": content for name, content in content_of(folder).items()}
    assert found in (old, new)
    return True


def go_on(golden: Path, made: Made, cases: list[Case]) -> int:
    """Let the next recorder finish; give how many cases it made."""
    reference = made.reference()
    record(golden, reference, cases)
    return len(reference.asked)
