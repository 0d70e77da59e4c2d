"""The order of a text's candidates: frequent and cheap mistakes come first, whatever the order of the catalogue."""

from itertools import accumulate, takewhile

import pytest

from pytest_dsocr.explain.catalogue import seen
from pytest_dsocr.explain.likely import SOON, likeliest_first, seconds
from pytest_dsocr.explain.texts import of_one_block, of_text
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.records.config import Level
from tests.faults.trial import loaded

SEEN = {one.mistake for one in seen(DEEPSEEK_OCR)}
BUDGET_S = 20.0


@pytest.mark.parametrize("level", [Level.TEXT, Level.INPUTS])
def test_a_run_tries_every_seen_mistake_of_a_cheap_stage_and_each_group_begins_with_its_seen_ones(level: Level) -> None:
    every = of_text(level, DEEPSEEK_OCR, of_one_block(loaded().engine))
    ends = accumulate(seconds(one, DEEPSEEK_OCR) for one in every)
    within = [one for one, _ in takewhile(lambda pair: pair[1] <= BUDGET_S, zip(every, ends, strict=True))]
    cheap = [one for one in every if one.id in SEEN and seconds(one, DEEPSEEK_OCR) < 0.2]
    assert not {one.id for one in cheap} - {one.id for one in within}
    assert {one.group for one in within} >= {*SOON, "steps", "vision_fusion", "projector", "prefill", "clip", "sam"}
    for group in {one.group for one in every}:
        of_group = [one.id in SEEN for one in every if one.group == group and one.block is None and one.part != "back"]
        assert of_group == sorted(of_group, reverse=True)


def test_a_mistake_of_a_small_group_comes_before_the_unseen_ones_of_a_large_group() -> None:
    every = [one for one in of_text(Level.INPUTS, DEEPSEEK_OCR) if one.id not in SEEN]
    first = {
        group: next(k for k, one in enumerate(every) if one.group == group) for group in ("steps", "vision_fusion")
    }
    assert first["vision_fusion"] < first["steps"]
    assert every[-1].group == "sam", "its blocks take most of the time"


@pytest.mark.parametrize("family", MODELS.values(), ids=MODELS)
def test_the_order_does_not_depend_on_that_of_the_catalogue(family: ModelSpec) -> None:
    found, known = of_text(Level.TEXT, family), {one.mistake for one in seen(family)}
    ways = [
        [(one.id in known, seconds(one, family)) for one in likeliest_first(of, family)] for of in (found, found[::-1])
    ]
    assert ways[0] == ways[1]
