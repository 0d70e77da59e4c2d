"""Mistakes planted in a subject's parts, alone and together: which of them the reference's tensors remove."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.run.substitution import Substituted, substitute
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from suites.contract.pages import write_page
from tests.subjects.seen import judged, seen
from tests.subjects.spoilt import only

NEW_TOKENS = 12
NOTHING = Substituted()

VISION_RIGHT = "vision is right when given the reference's inputs"
VISION_WRONG = "vision is still wrong when given the reference's inputs: vision is wrong by itself"
INPUTS_RIGHT = "tokens are right when given the reference's inputs"
INPUTS_WRONG = "tokens are still wrong when given the reference's inputs"
BOTH_RIGHT = "tokens are right when given the reference's inputs and vision features"
DECODER = "the decoder, or what puts features into the prompt, is wrong by itself"
BOTH_WRONG = f"tokens are still wrong when given the reference's inputs and vision features: {DECODER}"
FEATURES_RIGHT = "tokens are right when given the reference's vision features"
FEATURES_WRONG = f"tokens are still wrong when given the reference's vision features: {DECODER}"
LAYERS_WRONG = "tokens are still wrong when given the reference's vision features: the decoder is wrong by itself"


class Planted(EngineSubject):
    """An engine in which the named parts are wrong."""

    def __init__(self, engine: Engine[Any], *wrong: str) -> None:
        super().__init__(engine)
        self.wrong = wrong

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        inputs = super().inputs(page, prompt=prompt, preset=preset)
        if "grid's dtype" in self.wrong:
            inputs["images_spatial_crop"] = inputs["images_spatial_crop"].int()
        if "inputs" in self.wrong:
            inputs["images_ori"] = inputs["images_ori"].flip(-1)
        return inputs

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        seams = super().vision(inputs)
        if "failing" in self.wrong:
            raise RuntimeError("patched as well")
        if "sam" in self.wrong:
            seams["sam.page"] = 2 * seams["sam.page"]
        if "vision" in self.wrong:
            seams["vision_fusion"] = seams["vision_fusion"].roll(7, dims=0)
        if "silent" in self.wrong:
            return {}
        return seams

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        if "picky" in self.wrong and vision_fusion is not None:
            raise ValueError("these are not my features")
        if "decoder" in self.wrong and vision_fusion is not None:
            vision_fusion = 0.5 * vision_fusion
        state = super().prefill(inputs, vision_fusion)
        if "logits" in self.wrong:
            state.logits = 0.5 * state.logits
        return state


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    page = write_page("portrait", tmp_path_factory.mktemp("pages"))
    return make_case(page, "free", "tiny", NEW_TOKENS, family=DEEPSEEK_OCR)


@pytest.fixture(scope="module")
def live(tiny: Engine[Any], case: Case) -> ReferenceResult:
    return seen(tiny, case, keep_values=True)


def unneeded() -> Any:
    raise AssertionError("a donor was made and nothing is asked of it")


PLANTED = {
    ("inputs",): (VISION_RIGHT, INPUTS_RIGHT),
    ("vision",): (FEATURES_RIGHT,),
    ("decoder",): (FEATURES_WRONG,),
    ("grid's dtype", "sam"): (VISION_WRONG,),
    ("inputs", "vision"): (VISION_WRONG, INPUTS_WRONG, BOTH_RIGHT),
    ("inputs", "decoder"): (VISION_RIGHT, INPUTS_WRONG, BOTH_WRONG),
    ("inputs", "vision", "decoder"): (VISION_WRONG, INPUTS_WRONG, BOTH_WRONG),
    ("silent",): (FEATURES_RIGHT,),
}


@pytest.mark.parametrize("wrong", PLANTED, ids=", ".join)
def test_each_part_is_found_wrong_by_itself_or_not(
    wrong: tuple[str, ...], tiny: Engine[Any], case: Case, live: ReferenceResult
) -> None:
    """A live reference lends its own tensors."""
    subject = Planted(tiny, *wrong)
    assert substitute(subject, judged(subject, case, live), unneeded).findings == PLANTED[wrong]


def test_the_decoder_alone_is_wrong_only_if_its_first_layer_is_right(
    tiny: Engine[Any], case: Case, live: ReferenceResult
) -> None:
    blocks = replace(live, seams=run_teacher_forced(EngineSubject(tiny), case, live).seams)
    found = {
        one: substitute(Planted(tiny, one), judged(Planted(tiny, one), case, blocks)) for one in ("logits", "decoder")
    }
    assert {one: findings for one, (findings, _) in found.items()} == {
        "logits": (LAYERS_WRONG,),
        "decoder": (FEATURES_WRONG,),
    }


class Drifting(EngineSubject):
    """A donor of another dtype or device than the recording's: within the run's limits, and no more right."""

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: tensor * 1.01 for name, tensor in super().vision(inputs).items()}


def test_a_donor_lends_what_agrees_with_the_recording_and_no_more(tiny: Engine[Any], case: Case) -> None:
    recorded, subject = seen(tiny, case), Planted(tiny, "inputs", "vision")
    assert substitute(EngineSubject(tiny), judged(EngineSubject(tiny), case, recorded), unneeded) == NOTHING
    report = judged(subject, case, recorded)
    assert substitute(subject, report) == NOTHING
    for donor, findings in (
        (EngineSubject(tiny), PLANTED["inputs", "vision"]),
        (Planted(tiny, "inputs"), ()),
        (Planted(tiny, "vision"), (VISION_WRONG, INPUTS_WRONG)),
        (Planted(tiny, "failing"), ()),
    ):
        assert substitute(subject, report, lambda donor=donor: donor).findings == findings  # type: ignore[misc]
    subject = Planted(tiny, "vision")
    wider = judged(subject, case, recorded, tolerances("bfloat16"))
    assert substitute(subject, wider, lambda: Drifting(tiny)) == NOTHING


def test_tensors_are_lent_in_the_subjects_own_dtype_and_what_it_cannot_take_is_reported(
    tiny: Engine[Any], case: Case, live: ReferenceResult
) -> None:
    fused = live.seams["vision_fusion"]
    assert fused.values is not None
    wide = replace(live, seams={**live.seams, "vision_fusion": replace(fused, values=fused.values.double())})
    subject = Planted(tiny, "vision")
    assert substitute(subject, judged(subject, case, wide)).findings == (FEATURES_RIGHT,)
    subject = Planted(tiny, "silent", "picky")
    [finding] = substitute(subject, judged(subject, case, live)).findings
    assert finding.startswith(
        "the subject failed with the reference's tensors: the subject's prefill raised in prefill"
    )


class Misread(EngineSubject):
    """A subject with right stages and a wrong text."""

    def text_of(self, token_ids: Any) -> str:
        return "other"


def test_what_is_wrong_in_the_text_alone_or_without_stages_tells_nothing(
    tiny: Engine[Any], case: Case, live: ReferenceResult
) -> None:
    other = replace(live, output=replace(live.output, text="other"))
    for subject, expected in ((Misread(tiny), live), (only(EngineSubject(tiny), Level.TEXT), other)):
        report = judged(subject, case, expected)
        assert not report.passes
        assert substitute(subject, report, unneeded) == NOTHING
