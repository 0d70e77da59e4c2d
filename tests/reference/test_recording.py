"""Recordings read: everything that was written and nothing else, or an error that names the file and the reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.engine.session import Session
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import seal, sha256, unseal
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import (
    Observation,
)
from pytest_dsocr.observation.packing import pack, without_values
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError
from pytest_dsocr.reference.recorded_case import RecordedCase
from pytest_dsocr.reference.recording import MANIFEST, RecordedReference, Recording
from suites.contract.pages import write_page
from tests.recordings import find_recording
from tests.reference.replay import MADE, Made, Replay, content_of, record
from tests.subjects.seen import seen as observe

HOME = "synthetic-tiny/cpu-float32-eager"
BYTES_A_CASE = 30_000
"""A hundred cases of 64 tokens are then 3 MB."""

Written = tuple[Path, Replay, list[Case]]


@pytest.fixture(scope="module")
def written(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A folder of recordings, what was recorded in it, and of which cases."""
    golden = tmp_path_factory.mktemp("golden")
    record(golden, made.reference(), made.cases)
    return golden, made.reference(), made.cases


@pytest.fixture
def golden(written: Written, tmp_path: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(written[0], tmp_path / "golden"))


@pytest.fixture
def folder(golden: Path) -> Path:
    return golden / HOME


def as_bytes(observation: Observation) -> tuple[str, dict[str, tuple[torch.dtype, tuple[int, ...], bytes]]]:
    """An observation to the bit; a NaN is a NaN whichever it is in JSON, and keeps its bits in a tensor."""
    packed, tensors = pack(observation)
    named = sorted(tensors.items())
    return json.dumps(packed), {name: (t.dtype, tuple(t.shape), t.numpy().tobytes()) for name, t in named}


def test_a_recording_answers_as_the_reference_did(written: Written) -> None:
    golden, live, cases = written
    reference = RecordedReference(find_recording(golden, MADE.key, MADE.resampling))
    assert reference.provenance == MADE
    for case in cases:
        seen, recorded = live.observe(case), reference.observe(case)
        assert as_bytes(recorded) == as_bytes(without_values(seen))
        assert recorded.provenance == seen.provenance
        assert reference.inputs(case).prompt_ids == seen.inputs.prompt_ids
        assert recorded.logits is None
        assert all(seam.values is None for seam in recorded.seams.values())


def test_recorded_cases_are_given_with_their_pages(written: Written, tmp_path: Path) -> None:
    golden, _, cases = written
    reference = RecordedReference(Recording.open(golden / HOME))
    assert reference.cases(cases[0].page.parent) == sorted(cases, key=lambda case: case.id)
    with pytest.raises(DsocrError, match=r"lacks landscape\.png, square\.png, tiny\.png; give the folder"):
        reference.cases(tmp_path)


def test_a_case_of_64_tokens_is_small(tiny: Session[Any], written: Written, tmp_path: Path) -> None:
    _, _, cases = written
    case = replace(next(case for case in cases if case.preset.crop), max_new_tokens=64)
    record(tmp_path, Replay({case.id: observe(tiny, case)}), [case])
    assert sum(map(len, content_of(tmp_path).values())) < BYTES_A_CASE


def test_another_token_changes_few_lines(written: Written) -> None:
    _, live, cases = written
    seen = live.observe(cases[0])
    other = replace(seen, steps=(*seen.steps[:-1], seen.steps[-1]._replace(token=5)))
    lines, others = (RecordedCase(cases[0].to_json(), MADE, one).encode()[0].splitlines() for one in (seen, other))
    assert len(lines) > 30
    changed = [line for line, other_line in zip(lines, others, strict=True) if line != other_line]
    assert len(changed) == 2, "the row of tokens, and the seal"


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_a_missing_file_is_named(folder: Path) -> None:
    for path in files_of(folder):
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(ReferenceFaultError, match=rf"{path.name} (is missing|cannot be read).*; restore"):
            Recording.open(folder)
        path.write_bytes(content)
    Recording.open(folder)


@pytest.mark.parametrize("name", ["notes.txt", "tiny-tiny-free.json.partial", ".DS_Store"])
def test_a_surplus_file_is_named(name: str, folder: Path) -> None:
    (folder / name).write_text("{}")
    with pytest.raises(ReferenceFaultError, match=rf"{name} is not part of the recording there; delete it"):
        Recording.open(folder)


def forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a sealed file and seal it again; in a case's, have the manifest state its new hash."""
    content = unseal(path.read_bytes())
    del content["sha256"]
    change(content)
    path.write_bytes(seal(content))
    if path.name != MANIFEST:
        forge(path.with_name(MANIFEST), lambda manifest: restate(manifest["cases"][path.stem]["files"], path))


def restate(files: dict[str, Any], path: Path) -> None:
    content = path.read_bytes()
    files[path.name] = {"bytes": len(content), "sha256": sha256(content)}


FORGERIES: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {
    "another format of manifest": (MANIFEST, lambda c: c.update(format=2), "wrong format: invalid enum value 2"),
    "another format of case": (
        "tiny-tiny-free.json",
        lambda c: c.update(format=0),
        "wrong format: invalid enum value 0",
    ),
    "no provenance": (MANIFEST, lambda c: c.pop("provenance"), "field provenance"),
    "no dtype in the provenance": (
        MANIFEST,
        lambda c: c["provenance"].pop("dtype"),
        "wrong provenance: .* field dtype",
    ),
    "no files": (MANIFEST, lambda c: c["cases"]["tiny-tiny-free"].update(files={}), "lists other files"),
    "another case in the manifest": (
        MANIFEST,
        lambda c: c["cases"]["tiny-tiny-free"]["case"].update(max_new_tokens=7),
        "says of its case or making other than manifest.json",
    ),
    "a case made otherwise": (
        "tiny-tiny-free.json",
        lambda c: c["origin"].update(dtype="bfloat16"),
        "says of its case or making other than manifest.json",
    ),
    "no observation": ("tiny-tiny-free.json", lambda c: c.pop("observation"), "field observation"),
    "no tokens": ("tiny-tiny-free.json", lambda c: c["observation"].pop("tokens"), "holds no case"),
    "a token too few": ("tiny-tiny-free.json", lambda c: c["observation"]["tokens"].pop(), "holds no case"),
    "a seam without tensors": (
        "tiny-tiny-free.json",
        lambda c: c["observation"]["seams"].update(more=c["observation"]["seams"]["prefill"]),
        "holds no case",
    ),
    "a preset that cannot be": (
        "tiny-tiny-free.json",
        lambda c: c["case"]["preset"].update(base_size=1),
        "holds no image token",
    ),
    "other tensors": ("tiny-tiny-free.json", lambda c: c.update(tensors_sha256="00"), "does not hold the tensors"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_whole_files_with_the_wrong_content_are_refused(forgery: str, folder: Path) -> None:
    name, change, why = FORGERIES[forgery]
    forge(folder / name, change)
    with pytest.raises(ReferenceFaultError, match=why) as caught:
        Recording.open(folder)
    assert (MANIFEST if name == MANIFEST and "says of" not in why else "tiny-tiny-free") in str(caught.value)


@pytest.mark.parametrize("place", ["synthetic-tiny/cpu-bfloat16-eager", "synthetic-small/cpu-float32-eager"])
def test_a_recording_that_was_moved_is_refused(place: str, golden: Path, folder: Path) -> None:
    moved = golden / place
    moved.parent.mkdir(exist_ok=True)
    folder.rename(moved)
    why = rf"manifest\.json is of {HOME}, which does not fit its folder; move the recording to {HOME}"
    with pytest.raises(ReferenceFaultError, match=why):
        Recording.open(moved)


def test_a_recording_of_other_weights_is_foreign(folder: Path) -> None:
    recording = Recording.open(folder)
    RecordedReference(recording, checkpoint_sha256=MADE.checkpoint_sha256)
    why = r"manifest\.json was made with synthetic:tiny of SHA-256 c0c0.*, and the one under test has d1d1"
    with pytest.raises(ReferenceFaultError, match=why):
        RecordedReference(recording, checkpoint_sha256="d1" * 32)


@pytest.mark.parametrize(
    "pinned", [{**MADE.vendor_sha256, "deepencoder.py": "ee" * 32}, {"modeling_deepseekocr.py": "1a" * 32}]
)
def test_a_recording_of_files_other_than_the_pinned_is_stale(pinned: dict[str, str], folder: Path) -> None:
    recording = Recording.open(folder)
    RecordedReference(recording, vendor_sha256={**MADE.vendor_sha256, "not_imported.py": "ff" * 32})
    with pytest.raises(ReferenceFaultError, match=r"manifest\.json was made with a deepencoder\.py of SHA-256 2b2b"):
        RecordedReference(recording, vendor_sha256=pinned)


def test_no_recording_of_a_key_names_the_nearest(golden: Path) -> None:
    with pytest.raises(ReferenceFaultError) as caught:
        find_recording(golden, replace(MADE.key, device="nvidia-h200", dtype="bfloat16"), MADE.resampling)
    asked = "leave out --dsocr-reference-device and --dsocr-reference-dtype, and the nearest serves"
    assert f"but {HOME} (device cpu, dtype float32); {asked}; or make one with: " in str(caught.value)


def test_two_recordings_of_one_key_are_refused(golden: Path, folder: Path) -> None:
    shutil.copytree(folder, golden / f"{HOME}-pillow-13")
    with pytest.raises(ReferenceFaultError, match=r"eager and .*-pillow-13 are recordings of the same key; delete one"):
        find_recording(golden, MADE.key, MADE.resampling)


@pytest.mark.parametrize("left", [".cpu-float32-eager.recording", ".cpu-float32-eager.old"])
def test_what_a_killed_recorder_left_is_not_read(left: str, golden: Path, folder: Path) -> None:
    shutil.copytree(folder, folder.with_name(left))
    assert find_recording(golden, MADE.key, MADE.resampling).folder == folder


def test_damage_elsewhere_does_not_matter(golden: Path, folder: Path) -> None:
    other = Path(shutil.copytree(folder, golden / "synthetic-small/cpu-float32-eager"))
    (other / MANIFEST).write_bytes(b"{")
    assert find_recording(golden, MADE.key, MADE.resampling).folder == folder
    with pytest.raises(ReferenceFaultError, match=r"synthetic-small/cpu-float32-eager/manifest\.json is damaged"):
        find_recording(golden, replace(MADE.key, dtype="bfloat16"), MADE.resampling)


def test_a_page_is_known_by_its_content(written: Written, folder: Path, tmp_path: Path) -> None:
    _, _, [case, *_] = written
    reference = RecordedReference(Recording.open(folder))
    renamed = tmp_path / "another_name.png"
    shutil.copy(case.page, renamed)
    assert reference.observe(replace(case, page=renamed)).case_id == case.id


@pytest.mark.parametrize(
    ("other", "nearest"),
    [
        ({"prompt": "<image>\nFree the OCR."}, r"tiny-tiny-free \(prompt free\)"),
        ({"preset": DEFAULT.presets["small"]}, r"tiny-tiny-free \(preset tiny 512/512\)"),
        ({"preset": replace(DEFAULT.presets["tiny"], base_size=640)}, r"tiny-tiny-free \(preset tiny 512/512\)"),
        ({"max_new_tokens": 7}, r"tiny-tiny-free \(max_new_tokens 6\)"),
    ],
)
def test_what_is_not_recorded_is_told_with_the_nearest(
    other: dict[str, Any], nearest: str, written: Written, folder: Path
) -> None:
    reference = RecordedReference(Recording.open(folder))
    why = rf"does not hold tiny-\w+-\w+, but {nearest}; .*add it with: dsocr vendor record"
    with pytest.raises(NotRecordedError, match=why):
        reference.observe(replace(written[2][0], **other))


def test_an_unknown_page_is_not_recorded(folder: Path, written: Written, tmp_path: Path) -> None:
    reference = RecordedReference(Recording.open(folder))
    page = write_page("portrait", tmp_path)
    with pytest.raises(NotRecordedError, match=r"does not hold portrait-tiny-free, but tiny-tiny-free \(page "):
        reference.inputs(replace(written[2][0], page=page))


def test_another_page_under_a_recorded_name_is_stale(folder: Path, written: Written, tmp_path: Path) -> None:
    _, _, [case, *_] = written
    page = write_page("portrait", tmp_path).rename(tmp_path / case.page.name)
    with pytest.raises(ReferenceFaultError, match=r"tiny\.png has other pixels than the page recorded under its name"):
        RecordedReference(Recording.open(folder)).observe(replace(case, page=page))


def test_times_are_not_recorded(folder: Path, written: Written) -> None:
    reference = RecordedReference(Recording.open(folder))
    with pytest.raises(NotRecordedError, match=r"no stage times; give the vendor's folder"):
        reference.stage_times(written[2][0])
    reference.close()
