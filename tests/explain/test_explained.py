"""Mistakes planted in a session: the explaining process names the one that explains the divergence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.case import CaseReport, Explanation, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.explain.catalogue import mistakes
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.explain.planted import plant
from pytest_dsocr.explain.question import question_of
from pytest_dsocr.observation.config import Setup
from tests.conftest import model_of
from tests.faults.trial import cases, loaded, reference

ENOUGH_S = 600
"""However loaded the machine is."""


@pytest.fixture(scope="module")
def explainer() -> Iterator[Explainer]:
    """One process for every question here, as in a run."""
    made = Explainer(Setup(), ENOUGH_S)
    yield made
    made.close()


def judged(*names: str, place: int = 0) -> CaseReport:
    """The page that is read soonest, or the next, which is cut, compared with its recording with mistakes planted."""
    reference()  # is chosen before: by how Pillow resizes
    with Changes() as changes:
        for name in names:
            plant(mistakes()[name], loaded().session, changes)
        asked = ask(loaded(), reference(), cases()[place], tokenizer=resolve(MINI).tokenizer)
        return judge(asked, tolerances("float32"))


def explained(explainer: Explainer, report: CaseReport) -> Explanation:
    """What is said of a case, whatever was asked before."""
    question = question_of(report, ENOUGH_S)
    assert question is not None
    explanation = explainer.answered(question)
    assert explanation is not None
    return explanation


GELU, FRONT = "clip.activation-erf", "vision_fusion.separator-first"


def test_what_no_mistake_explains_is_said_so_and_the_process_goes_on(explainer: Explainer) -> None:
    bias = model_of(loaded().session).model.projector.layers.bias
    made = torch.Generator().manual_seed(1)
    with Changes() as changes:
        changes.weight(bias, bias.data + torch.randn(bias.shape, generator=made))
        explanation = explained(explainer, judged())
    assert not explanation.is_proven
    assert explanation.text.startswith("by none of ")
    assert explained(explainer, judged(FRONT)).is_proven


def test_two_mistakes_in_one_stage_are_not_taken_for_one(explainer: Explainer) -> None:
    explanation = explained(explainer, judged(GELU, "clip.no-bias-self_attn.out_proj"))
    assert not explanation.is_proven
    assert not explanation.text.startswith("with ")


def test_a_stage_is_asked_about_once_and_its_proof_reported_of_each_case_that_breaks_there(
    explainer: Explainer,
) -> None:
    report = judged(GELU)
    asking = Explainer(Setup(), ENOUGH_S)
    asking._client = explainer._client
    first, again = asking.explain(report), asking.explain(report)
    assert first is not None
    assert first.is_proven
    proof = replace(first, text=f"{first.text}; as in {report.case.id}")
    assert again == proof
    assert asking.explain(judged(GELU, place=1)) == replace(proof, what="clip.crops/0")
    asking._proven.clear()
    assert asking.explain(report) is None, "where nothing was proven the same is not looked for again"


def test_without_seconds_nothing_is_asked() -> None:
    assert Explainer(Setup(), 0).explain(judged(GELU)) is None


def test_seconds_that_end_are_reported(explainer: Explainer) -> None:
    question = question_of(judged(GELU), ENOUGH_S)
    assert question is not None
    explanation = explainer.answered(replace(question, budget_s=1e-9))
    assert explanation is None or "ended in front of" in explanation.text


def test_what_cannot_be_loaded_is_said_in_a_line(tmp_path: Path) -> None:
    made = Explainer(Setup(checkpoint=str(tmp_path)), ENOUGH_S)
    explanation = made.explain(judged(GELU))
    made.close()
    assert explanation is not None
    assert explanation.text.startswith("nothing was tried: ")
    assert "\n" not in explanation.text
