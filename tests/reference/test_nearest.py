"""Which recording serves a machine or a copy that none was made of, what it says of itself, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.cases.limits import key_of
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI_FOLDER
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import Output
from pytest_dsocr.observation.provenance import Key
from pytest_dsocr.reference.nearest import WAYS, Distance, pixels_apart, read_facts
from pytest_dsocr.reference.opening import Wanted, open_recorded
from pytest_dsocr.reference.protocol import NoRecordingError, NotRecordedError, ReferenceFaultError
from pytest_dsocr.reference.recorded_case import CUT
from pytest_dsocr.reference.recorder import recorder
from pytest_dsocr.reference.recording import RecordedReference, find_recordings, recordings_of
from pytest_dsocr.subjects.protocol import Setup
from suites.contract.facts import Facts
from tests.engine.written import write_synthetic
from tests.recordings import FOLDER, find_recording
from tests.reference.replay import MADE, NEW_TOKENS, Made, Replay, record

GPUS = (
    "nvidia-h100-80gb-hbm3",
    "nvidia-h200",
    "nvidia-a100-sxm4-80gb",
    "nvidia-geforce-rtx-4090",
    "amd-instinct-mi300x",
)
FLOAT32, BFLOAT16 = ("cpu", "float32"), ("nvidia-h200", "bfloat16")


@pytest.mark.parametrize("attention", ["eager", "sdpa", "flash_attention_2"])
@pytest.mark.parametrize("device", [*GPUS, "cpu"])
@pytest.mark.parametrize(("dtype", "serves"), [("float32", FLOAT32), ("bfloat16", BFLOAT16), ("float16", FLOAT32)])
def test_of_the_shipped_recordings_the_one_of_the_dtype_serves_any_device(
    device: str, dtype: str, attention: str, serves: tuple[str, str]
) -> None:
    weights = resolve("mini").sha256
    wanted = Key("mini", device, dtype, attention, weights)
    found = min(recordings_of(FOLDER, weights), key=lambda made: far(wanted, made))
    assert (found.device, found.dtype, found.resampling) == (*serves, resampling())


@pytest.mark.parametrize(
    ("device", "others"),
    [
        ("nvidia-h100-80gb-hbm3", ["nvidia-h200", "nvidia-l40s", "nvidia-a100-sxm4-80gb", "cpu"]),
        ("nvidia-geforce-rtx-4090", ["nvidia-l4", "nvidia-a10g", "nvidia-a100-sxm4-80gb", "tesla-t4", "cpu"]),
        ("nvidia-gb200", ["nvidia-b200", "nvidia-h200", "tesla-v100-sxm2-16gb", "cpu"]),
        ("amd-instinct-mi300x", ["amd-instinct-mi355x", "tesla-v100-sxm2-16gb", "nvidia-h200", "cpu"]),
        ("cpu", ["cpu", "amd-instinct-mi300x", "nvidia-h200"]),
    ],
)
def test_gpus_come_before_cpus_and_those_of_its_generation_first(device: str, others: list[str]) -> None:
    wanted = replace(MADE.key, device=device)
    ranked = sorted(sorted(others), key=lambda other: far(wanted, replace(MADE, device=other)))
    assert ranked == others


@pytest.mark.parametrize("worse", [{"resampling": "other"}, {"dtype": "bfloat16"}, {"device": "nvidia-h200"}])
def test_other_pixels_count_before_another_dtype_and_that_before_another_device(worse: dict[str, Any]) -> None:
    made = [replace(MADE, resampling="other"), replace(MADE, dtype="bfloat16"), replace(MADE, device="nvidia-h200")]
    at = [far(MADE.key, one) for one in made]
    assert at == sorted(at, reverse=True)
    assert min(at) > far(MADE.key, replace(MADE, attention="sdpa")) > far(MADE.key, MADE)
    assert far(MADE.key, replace(MADE, **worse)) in at


def far(wanted: Key, made: Any) -> Distance:
    return Distance.between(wanted, made.key, pixels_apart(made.to_json(), resampling()))


def test_it_says_what_it_stands_in_for(made: Made, tmp_path: Path) -> None:
    """And where its key was asked for, or the weights are others, it is refused."""
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
    with pytest.raises(NotRecordedError, match=r"Pillow 12\.0\.0's, .*pip install 'pillow==12\.0\.0'"):
        open_recorded([tmp_path / "other"], wanted()).observe(case)


@pytest.mark.parametrize("ceiling", range(1, NEW_TOKENS + 2))
def test_a_lower_ceiling_is_held_to_the_first_tokens(made: Made, tmp_path: Path, ceiling: int) -> None:
    case = replace(made.cases[0], max_new_tokens=ceiling)
    record(tmp_path, made.reference(), made.cases[:1])
    reference, whole = open_recorded([tmp_path], wanted()), made.observations[case.id]
    if ceiling > NEW_TOKENS:
        with pytest.raises(NotRecordedError, match="max_new_tokens"):
            reference.observe(case)
        return
    seen = reference.observe(case)
    assert seen.token_ids == whole.token_ids[:ceiling]
    is_cut = bool(seen.provenance and CUT in seen.provenance.overrides)
    assert is_cut == (ceiling < NEW_TOKENS)
    if is_cut:
        assert seen.output == Output.of(resolve("synthetic:tiny").tokenizer.decode(seen.token_ids), case.page)
        with pytest.raises(NotRecordedError):  # nobody decodes them
            RecordedReference(reference.recording).observe(case)


@pytest.mark.parametrize(("ends", "ceiling", "length"), [(True, 3, 3), (True, 4, 4), (True, 9, 4), (False, 9, None)])
def test_an_output_that_ended_is_whole(
    made: Made, tmp_path: Path, ends: bool, ceiling: int, length: int | None
) -> None:
    """By EOS as its fourth and last token, whatever its ceiling was."""
    case, eos = made.cases[0], Tiny.tokenizer.special.eos
    seen = made.observations[case.id]
    steps = (*seen.steps[:3], seen.steps[3]._replace(token=eos) if ends else seen.steps[3])
    of_four = replace(made.reference(), observations={case.id: replace(seen, steps=steps)})
    record(tmp_path, of_four, [replace(case, max_new_tokens=4)])
    reference = open_recorded([tmp_path], wanted())
    if length is None:
        with pytest.raises(NotRecordedError):
            reference.observe(replace(case, max_new_tokens=ceiling))
    else:
        assert len(reference.observe(replace(case, max_new_tokens=ceiling)).steps) == length


class Tiny:
    """A checkpoint of the recordings' content."""

    label, sha256, tokenizer = "tiny", MADE.checkpoint_sha256, resolve("synthetic:tiny").tokenizer


def wanted(fixed: frozenset[str] = frozenset(), **way: str) -> Wanted:
    checkpoint: Any = Tiny()
    return Wanted(checkpoint, fixed=fixed, **way)


HOME = "synthetic-tiny/cpu-float32-eager"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The embedded checkpoint, byte for byte, as a snapshot in a hub's cache: its folder is called by a revision."""
    folder = tmp_path_factory.mktemp("hub") / "models--someone--mini-ocr" / "snapshots" / "9f30c71f441d"
    return Path(shutil.copytree(MINI_FOLDER, folder))


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Other weights under the embedded checkpoint's name."""
    write_synthetic("tiny", tmp_path / "mini", torch.float32, seed=9)
    return tmp_path / "mini"


def test_a_copy_has_the_originals_key_and_a_name_of_its_own(copy: Path) -> None:
    key = key_of(Setup(str(copy)))
    assert key == key_of(Setup("mini"))
    assert key != key_of(Setup("mini", dtype="bfloat16"))
    assert (key.checkpoint, str(key)) == ("someone/mini-ocr", "someone-mini-ocr/cpu-float32-eager")


def test_other_weights_of_the_same_name_are_told_by_their_content(other: Path) -> None:
    key = Wanted(resolve(other)).key
    own, shipped = key.checkpoint_sha256[:12], resolve("mini").sha256[:12]
    with pytest.raises(ReferenceFaultError) as caught:
        find_recording(FOLDER, key, resampling())
    told = str(caught.value)
    assert f"holds no recording of mini/cpu-float32-eager (checkpoint {own}), but " in told
    assert f"mini/cpu-float32-eager (checkpoint {shipped})" in told


@pytest.fixture(scope="module")
def live(made: Made) -> tuple[Replay, list[Case]]:
    """A reference of three cases."""
    return made.reference(), made.cases


def test_a_copy_is_recorded_into_the_originals_recording(live: tuple[Replay, list[Case]], tmp_path: Path) -> None:
    reference, cases = live
    record(tmp_path, reference, cases[:1])
    of_copy = replace(reference, provenance=replace(MADE, checkpoint="a copy"))
    with recorder(tmp_path, of_copy.provenance) as target:
        assert (target.folder, target.notes) == (tmp_path / HOME, [])
        for case in target.missing(cases):
            target.add(case, of_copy.observe(case))
        recording = target.publish()
    assert set(recording.cases) == {case.id for case in cases}
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["synthetic-tiny"]


def places(live: tuple[Replay, list[Case]], folder: Path, **shipped: Any) -> list[Path]:
    """Give two folders of recordings, of the first case and of all others."""
    reference, cases = live
    record(folder / "own", reference, cases[:1])
    record(folder / "shipped", replace(reference, provenance=replace(MADE, **shipped)), cases[1:])
    return [folder / "own", folder / "shipped"]


def opened(places: list[Path]) -> Any:
    return open_recorded(places, wanted(fixed=frozenset(WAYS)))


def test_cases_that_ones_own_recording_lacks_are_the_shipped_ones(
    live: tuple[Replay, list[Case]], tmp_path: Path
) -> None:
    found = places(live, tmp_path)
    reference = opened(found)
    assert reference.recording.folder == found[0] / HOME
    assert [reference.observe(case).case_id for case in live[1]] == [case.id for case in live[1]]
    assert opened(found[1:]).recording.folder == found[1] / HOME
    with pytest.raises(NotRecordedError):
        opened(found[:1]).observe(live[1][1])
    [own, shipped] = find_recordings(found, MADE.key, MADE.resampling)
    assert (own.folder, shipped.folder) == (found[0] / HOME, found[1] / HOME)


@pytest.mark.parametrize(
    "other", [{"vendor_sha256": {"modeling_deepseekocr.py": "9c" * 32}}, {"dtype": "bfloat16"}, {"resampling": "feed"}]
)
def test_but_not_those_that_were_made_otherwise(
    live: tuple[Replay, list[Case]], tmp_path: Path, other: Mapping[str, Any]
) -> None:
    reference = opened(places(live, tmp_path, **other))
    assert reference.behind == ()
    with pytest.raises(NotRecordedError, match=live[1][1].id):
        reference.observe(live[1][1])


def test_the_facts_are_those_of_the_installed_pillow() -> None:
    facts = read_facts(FOLDER, "inputs")
    assert facts["provenance"]["resampling"] == resampling()
    assert (len(facts["prepared"]), len(facts["prompts"]), len(facts["grids"])) == (116, 12, 157)


def test_of_other_pillows_the_nearest_serve(tmp_path: Path) -> None:
    with pytest.raises(NotRecordedError, match=r"holds no inputs-\*\.json"):
        read_facts(tmp_path, "inputs")
    for version in ("1.0", "9.5", "99.0"):
        provenance = {"resampling": "other", "versions": {"pillow": version}}
        (tmp_path / f"inputs-pillow-{version}.json").write_text(json.dumps({"provenance": provenance}))
    assert read_facts(tmp_path, "inputs")["provenance"]["versions"] == {"pillow": "9.5"}


@pytest.mark.parametrize(("what", "error"), [("images_ori", None), ("input_ids", None), ("images_ori", 0.5)])
def test_pixels_of_another_pillow_are_not_held_against_a_subject(what: str, error: float | None) -> None:
    """Other things are, and pixels that differ from those that the vendor's code makes with the installed one."""
    made = {"date": "today", "resampling": "other", "versions": {"pillow": "1.0"}}
    wrong, facts = Comparison(what, Verdict.WRONG, "", error), Facts({"provenance": made})
    if what == "images_ori" and error is None:
        with pytest.raises(NotRecordedError, match=r"pip install 'pillow==1\.0'"):
            facts.with_origin(wrong)
    else:
        assert facts.with_origin(wrong).verdict is Verdict.WRONG
