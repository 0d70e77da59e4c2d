"""Tests of the choice of the nearest recording for another machine or copy, its notes, and its errors."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI_FOLDER
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.provenance import RecordingKey
from pytest_dsocr.records.reference_result import Output
from pytest_dsocr.reference.nearest import WAYS, Distance, distance, pixels_apart, read_facts
from pytest_dsocr.reference.opening import WantedReference, open_recorded
from pytest_dsocr.reference.protocol import NoRecordingError, NotRecordedError, ReferenceFaultError
from pytest_dsocr.reference.recorded_case import CUT
from pytest_dsocr.reference.recorder import recorder
from pytest_dsocr.reference.recording import RecordedReference, find_recordings
from suites.contract.facts import Facts
from tests.engine.written import write_synthetic
from tests.recordings import FOLDER, find_recording
from tests.reference.replay import HOME, MADE, NEW_TOKENS, Made, record


class Tiny:
    """A checkpoint with the hash of the recordings."""

    label, sha256, tokenizer = "tiny", MADE.checkpoint_sha256, resolve("synthetic:tiny").tokenizer


def wanted(fixed: frozenset[str] = frozenset(), **way: str) -> WantedReference:
    checkpoint: Any = Tiny()
    return WantedReference(checkpoint, fixed=fixed, **way)


def far(wanted: RecordingKey, made: Any) -> Distance:
    return distance(wanted, made.key, pixels_apart(made.to_json(), resampling()))


@pytest.mark.parametrize(
    ("device", "others"),
    [
        ("nvidia-h100-80gb-hbm3", ["nvidia-h200", "nvidia-l40s", "nvidia-a100-sxm4-80gb", "cpu"]),
        ("nvidia-geforce-rtx-4090", ["nvidia-l4", "nvidia-a10g", "nvidia-a100-sxm4-80gb", "tesla-t4", "cpu"]),
        ("cpu", ["cpu", "amd-instinct-mi300x", "nvidia-h200"]),
    ],
)
def test_gpus_come_before_cpus_and_those_of_its_generation_first(device: str, others: list[str]) -> None:
    asked = replace(MADE.key, device=device)
    assert sorted(sorted(others), key=lambda other: far(asked, replace(MADE, device=other))) == others


def test_other_pixels_count_before_another_dtype_and_that_before_another_device() -> None:
    wanted = replace(MADE.key, device="nvidia-l4", dtype="bfloat16")
    as_wanted = replace(MADE, device="nvidia-l4", dtype="bfloat16")
    nearer: list[dict[str, Any]] = [{}, {"attention": "sdpa"}, {"device": "nvidia-h200"}, {"device": "cpu"}]
    nearer += [{"dtype": "float32"}, {"dtype": "float16"}, {"resampling": "other"}]
    at = [far(wanted, replace(as_wanted, **other)) for other in nearer]
    assert not any(at[0])
    assert at == sorted(at)
    assert len(set(at)) == len(at)


def test_it_says_what_it_stands_in_for_and_is_refused_where_another_was_asked_for(made: Made, tmp_path: Path) -> None:
    origin = replace(MADE, device="nvidia-h200", dtype="bfloat16")
    record(tmp_path, made.reference(provenance=origin), made.cases[:1])
    reference = open_recorded([tmp_path], wanted(device="nvidia-h100-80gb-hbm3", dtype="bfloat16"))
    assert reference.provenance.device == "nvidia-h200"
    assert "none is of nvidia-h100-80gb-hbm3-bfloat16-eager" in reference.stands_in
    assert open_recorded([tmp_path], wanted(device="nvidia-h200", dtype="bfloat16")).stands_in == ""
    with pytest.raises(NoRecordingError, match=r"leave out --dsocr-reference-device, and the nearest serves"):
        open_recorded([tmp_path], wanted(dtype="bfloat16", fixed=frozenset({"device", "dtype"})))
    with pytest.raises(NoRecordingError, match=r"\(checkpoint \w+, device nvidia-h200, dtype bfloat16\); make one"):
        find_recordings([tmp_path], replace(MADE.key, checkpoint_sha256="d1" * 32), resampling(), ())


def test_of_another_pillow_it_serves_the_pages_that_both_resize_alike(made: Made, tmp_path: Path) -> None:
    case = made.cases[0]
    older = replace(MADE, resampling="0123", versions={**MADE.versions, "pillow": "12.0.0"})
    record(tmp_path / "alike", made.reference(provenance=older), [case])
    reference = open_recorded([tmp_path / "alike"], wanted())
    assert reference.observe(case).token_ids == made.observations[case.id].token_ids
    assert "none was made with a Pillow that resizes as the installed" in reference.stands_in
    seen = made.observations[case.id]
    other = replace(seen, inputs=replace(seen.inputs, images_ori="bfloat16 [1, 3, 512, 512] sha256 0", values=None))
    record(tmp_path / "other", replace(made.reference(provenance=older), observations={case.id: other}), [case])
    with pytest.raises(NotRecordedError, match=r"Pillow 12\.0\.0 made them, .*pip install 'pillow==12\.0\.0'"):
        open_recorded([tmp_path / "other"], wanted()).observe(case)


def test_a_lower_ceiling_is_held_to_the_first_tokens(made: Made, tmp_path: Path) -> None:
    record(tmp_path, made.reference(), made.cases[:1])
    reference, whole = open_recorded([tmp_path], wanted()), made.observations[made.cases[0].id]
    for ceiling in (1, NEW_TOKENS - 1, NEW_TOKENS):
        case = replace(made.cases[0], max_new_tokens=ceiling)
        seen = reference.observe(case)
        assert seen.token_ids == whole.token_ids[:ceiling]
        assert seen.provenance
        assert (CUT in seen.provenance.overrides) is (ceiling < NEW_TOKENS)
        assert seen.output == Output.of(Tiny.tokenizer.decode(seen.token_ids), case.page, DEEPSEEK_OCR.form)
    with pytest.raises(NotRecordedError):  # nobody decodes them
        RecordedReference(reference.recording).observe(replace(case, max_new_tokens=1))
    with pytest.raises(NotRecordedError, match="max_new_tokens"):
        reference.observe(replace(case, max_new_tokens=NEW_TOKENS + 1))


def test_an_output_that_ended_is_whole(made: Made, tmp_path: Path) -> None:
    """By EOS as its fourth and last token, whatever its ceiling was."""
    case, seen = made.cases[0], made.observations[made.cases[0].id]
    steps = (*seen.steps[:3], seen.steps[3]._replace(token=Tiny.tokenizer.special.eos))
    of_four = replace(made.reference(), observations={case.id: replace(seen, steps=steps)})
    record(tmp_path, of_four, [replace(case, max_new_tokens=4)])
    reference = open_recorded([tmp_path], wanted())
    for ceiling, length in ((3, 3), (4, 4), (9, 4)):
        assert len(reference.observe(replace(case, max_new_tokens=ceiling)).steps) == length


def test_a_checkpoint_counts_by_its_content_and_not_by_its_name(tmp_path: Path) -> None:
    copy = tmp_path / "hub" / "models--someone--mini-ocr" / "snapshots" / "9f30c71f441d"
    shutil.copytree(MINI_FOLDER, copy)
    mini = WantedReference(resolve("mini"))
    assert WantedReference(resolve(copy)).key == mini.key != replace(mini, dtype="bfloat16").key
    assert str(WantedReference(resolve(copy)).key) == "someone-mini-ocr/cpu-float32-eager"
    write_synthetic("tiny", tmp_path / "mini", torch.float32, seed=9)
    key = WantedReference(resolve(tmp_path / "mini")).key
    own, shipped = key.checkpoint_sha256[:12], resolve("mini").sha256[:12]
    why = rf"holds no recording of mini/cpu-float32-eager \(checkpoint {own}\), but .*\(checkpoint {shipped}\)"
    with pytest.raises(ReferenceFaultError, match=why):
        find_recording(FOLDER, key, resampling())


def test_a_copy_is_recorded_into_the_originals_recording(made: Made, tmp_path: Path) -> None:
    record(tmp_path, made.reference(), made.cases[:1])
    of_copy = made.reference(provenance=replace(MADE, checkpoint="a copy"))
    with recorder(tmp_path, of_copy.provenance) as target:
        assert (target.folder, target.notes) == (tmp_path / HOME, [])
    assert set(record(tmp_path, of_copy, made.cases).cases) == {case.id for case in made.cases}
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["synthetic-tiny"]


@pytest.mark.parametrize(
    "other",
    [{}, {"vendor_sha256": {"modeling_deepseekocr.py": "9c" * 32}}, {"dtype": "bfloat16"}, {"resampling": "feed"}],
)
def test_cases_that_ones_own_recording_lacks_are_the_shipped_ones_if_made_alike(
    other: Mapping[str, Any], made: Made, tmp_path: Path
) -> None:
    own, shipped = tmp_path / "own", tmp_path / "shipped"
    record(own, made.reference(), made.cases[:1])
    record(shipped, made.reference(provenance=replace(MADE, **other)), made.cases[1:])
    reference = open_recorded([own, shipped], wanted(fixed=frozenset(WAYS)))
    assert reference.recording.folder == own / HOME
    assert reference.observe(made.cases[0]).case_id == made.cases[0].id
    assert [one.folder for one in reference.behind] == ([] if other else [shipped / HOME])
    if other:
        with pytest.raises(NotRecordedError, match=made.cases[1].id):
            reference.observe(made.cases[1])
    else:
        assert reference.observe(made.cases[1]).case_id == made.cases[1].id


def test_the_facts_are_those_of_the_nearest_pillow(tmp_path: Path) -> None:
    facts = read_facts(FOLDER, "inputs")
    assert facts["provenance"]["resampling"] == resampling()
    assert (len(facts["prepared"]), len(facts["prompts"]), len(facts["grids"])) == (116, 12, 157)
    with pytest.raises(NotRecordedError, match=r"holds no inputs-\*\.json"):
        read_facts(tmp_path, "inputs")
    for version in ("1.0", "9.5", "99.0", "9{5"):
        provenance = {"resampling": "other", "versions": {"pillow": version}}
        (tmp_path / f"inputs-pillow-{version}.json").write_text(json.dumps({"provenance": provenance}))
    assert read_facts(tmp_path, "inputs")["provenance"]["versions"] == {"pillow": "9.5"}


def test_pixels_of_another_pillow_are_not_compared_with_a_subject() -> None:
    """Other things are, and pixels that differ from those that the vendor's code makes with the installed one."""
    facts = Facts({"provenance": {"date": "today", "resampling": "other", "versions": {"pillow": "1.0"}}}, DEEPSEEK_OCR)
    for what, error in (("input_ids", None), ("images_ori", 0.5)):
        assert facts.with_origin(Comparison(what, Verdict.WRONG, "", error)).verdict is Verdict.WRONG
    with pytest.raises(NotRecordedError, match=r"pip install 'pillow==1\.0'"):
        facts.with_origin(Comparison("images_ori", Verdict.WRONG, ""))
