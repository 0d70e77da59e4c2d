"""Mistakes planted in a session, and what a process without them says explains the divergence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.case import CaseReport, Explanation, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.contract import image
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.engine import clip, pipeline
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.fusion import end_rows, mosaic, square
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.explain.question import question_of
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.config import Setup
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted
from pytest_dsocr.reference.recording import RecordedReference
from pytest_dsocr.subjects.session import SessionSubject, session_subject
from tests.conftest import model_of
from tests.recordings import FOLDER, find_recording

ENOUGH_S = 600
"""However loaded the machine is."""
Plant = Callable[[pytest.MonkeyPatch, SessionSubject], None]


@pytest.fixture(scope="module")
def explainer() -> Iterator[Explainer]:
    """One process for every question here, as in a run."""
    made = Explainer(Setup(), ENOUGH_S)
    yield made
    made.close()


@cache
def subject() -> SessionSubject:
    """The session that mistakes are planted in."""
    return session_subject(Setup())


@cache
def reference() -> RecordedReference:
    """The recordings of the vendor's code."""
    return RecordedReference(find_recording(FOLDER, Wanted(resolve(MINI)).key, resampling()))


def case(stem: str = "figures_201") -> Case:
    """The page of dev-3 that is read soonest: no crops, 76 tokens."""
    [page] = (page for page in shipped("dev-3") if page.stem == stem)
    return make_case(page, "markdown", "gundam")


def judged(plant: Plant) -> CaseReport:
    """The page, held against its recording with a mistake planted."""
    reference()
    with pytest.MonkeyPatch.context() as patch:
        plant(patch, subject())
        return judge(ask(subject(), reference(), case(), tokenizer=resolve(MINI).tokenizer), tolerances("float32"))


def explained(explainer: Explainer, report: CaseReport) -> Explanation:
    """What is said of a case, whatever was asked before."""
    question = question_of(report, ENOUGH_S)
    assert question is not None
    told = explainer.answered(question)
    assert told is not None
    return told


def white_bars(patch: pytest.MonkeyPatch, planted: SessionSubject) -> None:
    patch.setattr(image, "GREY", (255, 255, 255))


def exact_gelu(patch: pytest.MonkeyPatch, planted: SessionSubject) -> None:
    patch.setattr(clip, "quick_gelu", F.gelu)


def separator_in_front(patch: pytest.MonkeyPatch, planted: SessionSubject) -> None:
    def fuse(crops: Any, page: Tensor, grid: tuple[int, int], newline: Tensor, separator: Tensor) -> Tensor:
        laid = [] if crops is None else [end_rows(mosaic(crops, grid), newline)]
        return torch.cat([separator[None], *laid, end_rows(square(page), newline)])

    patch.setattr(pipeline, "fuse", fuse)


def no_shared_experts(patch: pytest.MonkeyPatch, planted: SessionSubject) -> None:
    for layer in model_of(planted.session).model.decoder_layers()[1:]:
        weight = layer.mlp.get_parameter("shared_experts.down_proj.weight")
        patch.setattr(weight, "data", torch.zeros_like(weight))


PLANTED: Mapping[str, tuple[Plant, str, tuple[str, ...]]] = {
    "pixels": (white_bars, "images_ori", ("bars of the colour (255, 255, 255)", "all of the inputs")),
    "clip": (exact_gelu, "clip.page/0", ("CLIP's exact GELU in place of the quick GELU", "all of clip behind it")),
    "fusion": (separator_in_front, "vision_fusion", ("the separator in front",)),
    "decoder": (no_shared_experts, "prefill/1", ("no shared experts", "all of prefill behind it")),
}


@pytest.mark.parametrize(("plant", "what", "words"), PLANTED.values(), ids=PLANTED)
def test_a_mistake_is_named(explainer: Explainer, plant: Plant, what: str, words: Sequence[str]) -> None:
    told = explained(explainer, judged(plant))
    assert told.is_proven, told.text
    assert f"the session gives at {what} what the subject gave" in told.text
    for one in words:
        assert one in told.text


def test_what_no_mistake_explains_is_said_so_and_the_process_goes_on(explainer: Explainer) -> None:
    def noise(patch: pytest.MonkeyPatch, planted: SessionSubject) -> None:
        bias = model_of(planted.session).model.projector.layers.bias
        made = torch.Generator().manual_seed(1)
        patch.setattr(bias, "data", bias.data + torch.randn(bias.shape, generator=made))

    told = explained(explainer, judged(noise))
    assert not told.is_proven
    assert told.text.startswith("by none of ")
    assert explained(explainer, judged(separator_in_front)).is_proven


def test_two_mistakes_in_one_stage_are_not_taken_for_one(explainer: Explainer) -> None:
    def both(patch: pytest.MonkeyPatch, planted: SessionSubject) -> None:
        exact_gelu(patch, planted)
        for layer in model_of(planted.session).model.vision_model.transformer.layers:
            patch.setattr(layer.get_submodule("self_attn.out_proj").bias, "data", torch.zeros(192))

    told = explained(explainer, judged(both))
    assert not told.is_proven
    assert not told.text.startswith("with ")


def test_a_stage_is_asked_about_once_and_its_proof_told_of_each_case_that_breaks_there(explainer: Explainer) -> None:
    report = judged(exact_gelu)
    asking = Explainer(Setup(), ENOUGH_S)
    asking._client = explainer._client
    first, again = asking.explain(report), asking.explain(report)
    assert first is not None
    assert first.is_proven
    assert again == replace(first, text=f"{first.text}; as in {report.case.id}")
    asking._proven.clear()
    assert asking.explain(report) is None, "where nothing was proven the same is not looked for again"


def test_without_seconds_nothing_is_asked() -> None:
    assert Explainer(Setup(), 0).explain(judged(exact_gelu)) is None


def test_seconds_that_end_are_told(explainer: Explainer) -> None:
    question = question_of(judged(exact_gelu), ENOUGH_S)
    assert question is not None
    told = explainer.answered(replace(question, budget_s=1e-9))
    assert told is None or "ended in front of" in told.text


def test_what_cannot_be_loaded_is_said_in_a_line(tmp_path: Path) -> None:
    made = Explainer(Setup(checkpoint=str(tmp_path)), ENOUGH_S)
    told = made.explain(judged(exact_gelu))
    made.close()
    assert told is not None
    assert told.text.startswith("nothing was tried: ")
    assert "\n" not in told.text
