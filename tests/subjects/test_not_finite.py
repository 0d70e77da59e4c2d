"""NaN and infinity in each stage in turn: the stage that is named, how many there are, and where the first is."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.compare.case import CaseReport, Exchange, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.session import Session
from pytest_dsocr.observation.block_seams import watch_deep
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.observation.packing import without_values
from pytest_dsocr.subjects.follow import follow
from tests.conftest import model_of
from tests.crops import cropped_case
from tests.subjects.seen import seen
from tests.subjects.spoilt import Spoilt

TOKENS = 4
WHOLE = ["sam.crops", "sam.page", "clip.crops", "clip.page", "projector.crops", "projector.page", "vision_fusion"]
BLOCKS = ["sam.crops/1", "sam.page/0", "clip.page/1"]


@pytest.fixture(scope="module")
def case(pages: Path) -> Case:
    return cropped_case(pages, "markdown", TOKENS)


@pytest.fixture(scope="module")
def expected(tiny: Session[Any], case: Case) -> Observation:
    """A live reference, which shows its blocks as well."""
    return with_blocks(tiny, case, seen(tiny, case, keep_values=True))


def with_blocks(session: Session[Any], case: Case, found: Observation) -> Observation:
    from dataclasses import replace

    with watch_deep(model_of(session).get_submodule) as deep:
        session.prefill(session.prepare(case.page, prompt=case.prompt, preset=case.preset))
    return replace(found, seams={**found.seams, **deep.seams})


def held(subject: Any, case: Case, expected: Observation) -> CaseReport:
    return judge(Exchange(case, follow(subject, case, expected), expected, 0.0, 0.0), tolerances("float32"))


@pytest.mark.parametrize(
    ("seam", "bad"),
    [
        *((seam, math.nan) for seam in (*WHOLE, *BLOCKS, "prefill")),
        *(("clip.page", -math.inf), ("prefill", math.inf)),
    ],
)
def test_the_first_divergence_is_the_stage_that_is_not_finite(
    seam: str, bad: float, tiny: Session[Any], case: Case, expected: Observation
) -> None:
    report = held(Spoilt(tiny, seam, bad), case, expected)
    found = {one.what: one for one in report.comparisons}
    assert report.divergence is not None
    assert report.divergence.first.what == seam
    assert "not finite" in report.divergence.cause or "never filled" in report.divergence.cause
    assert [one.what for one in report.comparisons if one.lost_to] == []
    assert report.divergence.right == [one.what for one in report.comparisons].index(seam)
    assert {found[name].verdict for name in ("input_ids", "images_crop", "images_ori")} == {Verdict.MATCH}
    assert found["tokens"].verdict is Verdict.WRONG
    kind = "NaN" if math.isnan(bad) else "infinite"
    shape = expected.seams[seam].shape
    first = [int(k) for k in torch.unravel_index(torch.tensor(2), shape)]
    assert report.divergence.first.measured == (
        f"6 {kind} of {math.prod(shape)} values, the first at {first}; the reference is finite"
    )


@pytest.mark.parametrize("whole", [True, False], ids=["live", "recorded"])
def test_a_step_whose_logits_are_not_finite_has_no_choice_and_is_named(
    whole: bool, tiny: Session[Any], case: Case, expected: Observation
) -> None:
    report = held(Spoilt(tiny, "step", math.nan), case, expected if whole else without_values(expected))
    found = {one.what: one for one in report.comparisons}
    assert report.divergence is not None
    assert report.divergence.first == found["logits"]
    assert "prefill is finite" in report.divergence.cause
    assert found["logits"].measured == "step 3: 6 NaN of 512 values, the first at [2]; the reference is finite"
    assert found["prefill_best"].verdict is Verdict.MATCH
    assert found["tokens"].verdict is Verdict.WRONG
    assert found["tokens"].details[0].startswith("step 3: no choice, for its logits hold NaN or infinity; the")
