"""Recordings read: everything that was written and nothing else, or an error that names the file and the reason."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.base.files import seal, sha256, unseal
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.packing import without_values
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.reference.goldens import MANIFEST
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError
from pytest_dsocr.reference.recording import RecordedReference, Recording, find_recordings
from suites.contract.pages import write_page
from tests.compare.made import every_bit
from tests.recordings import find_recording
from tests.reference.replay import HOME, MADE, Made, Replay, content_of, record

BYTES_A_CASE = 20_000

Written = tuple[Path, Replay, list[Case]]


@pytest.fixture(scope="module")
def written(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Return a folder of recordings, what was recorded in it, and of which cases."""
    golden = tmp_path_factory.mktemp("golden")
    record(golden, made.reference(), made.cases)
    return golden, made.reference(), made.cases


@pytest.fixture
def golden(written: Written, tmp_path: Path) -> Path:
    """Return a copy of it to damage."""
    return Path(shutil.copytree(written[0], tmp_path / "golden"))


@pytest.fixture
def folder(golden: Path) -> Path:
    return golden / HOME


def test_a_recording_answers_as_the_reference_did(written: Written) -> None:
    golden, live, cases = written
    reference = RecordedReference(find_recording(golden, MADE.key, MADE.resampling))
    assert reference.provenance == MADE
    for case in cases:
        seen, recorded = live.observe(case), reference.observe(case)
        assert every_bit(recorded) == every_bit(without_values(_without_pictures(seen)))
        assert all(seam.values is None for seam in recorded.seams.values())


def _without_pictures(seen: ReferenceResult) -> ReferenceResult:
    """Leave out what a recording does not keep of a picture."""
    artefacts = {name: replace(one, tables=(), corner=None) for name, one in seen.output.artefacts.items()}
    return replace(seen, output=replace(seen.output, artefacts=artefacts))


def test_a_case_is_small(written: Written) -> None:
    golden, _, cases = written
    assert sum(map(len, content_of(golden).values())) < BYTES_A_CASE * len(cases)


def test_a_missing_a_changed_or_a_surplus_file_is_named(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        path.unlink()
        with pytest.raises(ReferenceFaultError, match=rf"{path.name} (is missing|cannot be read).*; restore"):
            Recording.open(folder)
        middle = len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
        with pytest.raises(ReferenceFaultError, match=rf"{path.name} is damaged"):
            Recording.open(folder)
        path.write_bytes(content)
    (folder / ".DS_Store").touch()
    with pytest.raises(ReferenceFaultError, match=r"\.DS_Store is not part of the recording there; delete it"):
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


CASE = "tiny-tiny-free.json"
FORGERIES: dict[str, tuple[str, Callable[[dict[str, Any]], object], str]] = {  # others: hardening/test_fuzzed_files.py
    "no files": (MANIFEST, lambda c: c["cases"]["tiny-tiny-free"].update(files={}), "lists other files"),
    "another case in the manifest": (
        MANIFEST,
        lambda c: c["cases"]["tiny-tiny-free"]["case"].update(max_new_tokens=7),
        "differs from manifest.json in its case or provenance",
    ),
    "a case made otherwise": (
        CASE,
        lambda c: c["origin"].update(dtype="bfloat16"),
        "differs from manifest.json in its case or provenance",
    ),
    "other tensors": (CASE, lambda c: c.update(tensors_sha256="00"), "does not contain the tensors"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_whole_files_with_the_wrong_content_are_refused(forgery: str, folder: Path) -> None:
    name, change, why = FORGERIES[forgery]
    forge(folder / name, change)
    with pytest.raises(ReferenceFaultError, match=why) as caught:
        Recording.open(folder)
    assert (MANIFEST if name == MANIFEST and "says of" not in why else "tiny-tiny-free") in str(caught.value)


def test_another_place_and_two_of_one_key_are_refused(golden: Path, folder: Path) -> None:
    other = golden / "synthetic-tiny" / "cpu-bfloat16-eager"
    folder.rename(other)
    with pytest.raises(ReferenceFaultError, match=rf"is of {HOME}, which does not fit its folder; move .* to {HOME}"):
        Recording.open(other)
    other.rename(folder)
    shutil.copytree(folder, folder.with_name(".cpu-float32-eager.recording"))  # as a killed recorder leaves it
    elsewhere = Path(shutil.copytree(folder, golden / "synthetic-small/cpu-float32-eager"))
    (elsewhere / MANIFEST).write_bytes(b"{")
    assert find_recording(golden, MADE.key, MADE.resampling).folder == folder
    with pytest.raises(ReferenceFaultError, match=r"synthetic-small/cpu-float32-eager/manifest\.json is damaged"):
        find_recordings([golden], replace(MADE.key, dtype="bfloat16"), MADE.resampling, ())
    shutil.rmtree(elsewhere.parent)
    with pytest.raises(ReferenceFaultError) as caught:
        find_recording(golden, replace(MADE.key, device="nvidia-h200", dtype="bfloat16"), MADE.resampling)
    asked = "leave out --dsocr-reference-device and --dsocr-reference-dtype, and the nearest serves"
    assert f"but {HOME} (device cpu, dtype float32); {asked}; or make one with: " in str(caught.value)
    shutil.copytree(folder, golden / f"{HOME}-pillow-13")
    with pytest.raises(ReferenceFaultError, match=r"eager and .*-pillow-13 are recordings of the same key; delete one"):
        find_recording(golden, MADE.key, MADE.resampling)


def test_a_recording_of_other_weights_or_files_is_refused(folder: Path) -> None:
    recording = Recording.open(folder)
    files = {**MADE.vendor_sha256, "not_imported.py": "ff" * 32}
    RecordedReference(recording, checkpoint_sha256=MADE.checkpoint_sha256, vendor_sha256=files).close()
    with pytest.raises(ReferenceFaultError, match=r"synthetic:tiny of SHA-256 c0c0.*, and the one under test has d1d1"):
        RecordedReference(recording, checkpoint_sha256="d1" * 32)
    for pinned in ({**files, "deepencoder.py": "ee" * 32}, {"modeling_deepseekocr.py": "1a" * 32}):
        with pytest.raises(ReferenceFaultError, match=r"was made with a deepencoder\.py of SHA-256 2b2b"):
            RecordedReference(recording, vendor_sha256=pinned)


def test_a_case_is_known_by_its_content_and_others_are_reported_with_the_nearest(
    written: Written, folder: Path, tmp_path: Path
) -> None:
    reference, case = RecordedReference(Recording.open(folder)), written[2][0]
    renamed = Path(shutil.copy(case.page, tmp_path / "another_name.png"))
    assert reference.observe(replace(case, page=renamed)).case_id == case.id
    other_page = write_page("portrait", tmp_path)
    others: list[tuple[dict[str, Any], str]] = [
        ({"prompt": "<image>\nFree the OCR."}, r"tiny-tiny-free \(prompt free\)"),
        ({"preset": DEEPSEEK_OCR.presets["small"]}, r"tiny-tiny-free \(preset tiny 512/512\)"),
        ({"preset": replace(DEEPSEEK_OCR.presets["tiny"], base_size=640)}, r"tiny-tiny-free \(preset tiny 512/512\)"),
        ({"max_new_tokens": 7}, r"tiny-tiny-free \(max_new_tokens 6\)"),
        ({"page": other_page}, r"tiny-tiny-free \(page "),
    ]
    for other, nearest in others:
        why = rf"does not hold \w+-\w+-\w+, but {nearest}.*; add it with: dsocr vendor record"
        with pytest.raises(NotRecordedError, match=why):
            reference.observe(replace(case, **other))
    same_name = other_page.rename(tmp_path / case.page.name)
    with pytest.raises(ReferenceFaultError, match=r"tiny\.png has other pixels than the page recorded under its name"):
        reference.observe(replace(case, page=same_name))
