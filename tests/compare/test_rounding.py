"""Judgement of a stage's rounding by the size of its errors, their bias, and effects of known mistakes."""

import math
from dataclasses import replace

import pytest

from pytest_dsocr.compare.seams import compare_rounding, known_effects
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.records.subject_result import Effect, Rounding

BLOCKS = Rounding(parts=5, differing=0.2, part="clip.page/1", ratio=1.1, bias=1.2, tried=("clip.a", "clip.b"))
STAGE = replace(BLOCKS, is_whole=True, part="clip.page")
THERE = Effect("clip.activation-erf", "the exact GELU", share=0.99, error=0.01, likelihood=5000.0)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (Rounding(parts=5), Verdict.MATCH),
        (BLOCKS, Verdict.DRIFT),
        (replace(BLOCKS, ratio=0.1), Verdict.DRIFT),  # more exact is not wrong
        (replace(BLOCKS, ratio=4.1), Verdict.WRONG),
        (replace(BLOCKS, bias=10.1), Verdict.WRONG),
        (replace(STAGE, bias=100.0), Verdict.DRIFT),  # norms without autocast
        (replace(BLOCKS, effects=(THERE,)), Verdict.WRONG),
        (replace(STAGE, effects=(THERE,)), Verdict.WRONG),
        (replace(BLOCKS, fewer_bits=True, ratio=9.0, bias=99.0), Verdict.DRIFT),
        (replace(BLOCKS, fewer_bits=True, effects=(THERE,)), Verdict.WRONG),
    ],
)
def test_what_is_wrong(found: Rounding, verdict: Verdict) -> None:
    compared = compare_rounding("clip", found, allowed=4.0)
    assert (compared.what, compared.stage, compared.verdict) == ("clip.rounding", "clip", verdict)
    assert compared.passes is (verdict is not Verdict.WRONG)


@pytest.mark.parametrize(
    ("share", "z", "of_blocks", "of_stage"),
    [
        (1.0, 41, True, True),
        (1.0, 39, True, False),
        (0.7, 41, True, False),
        (0.5, 900, False, False),
        (1.0, 5, False, False),
    ],
)
def test_an_effect_counts_where_its_share_is_one_and_sure(
    share: float, z: float, of_blocks: bool, of_stage: bool
) -> None:
    effect = THERE._replace(share=share, error=share / z)
    of_end = effect._replace(is_whole=True)
    fewer_bits = replace(BLOCKS, fewer_bits=True)
    made = [(BLOCKS, effect), (STAGE, of_end), (BLOCKS, of_end), (fewer_bits, effect)]
    found = [bool(known_effects(replace(one, effects=(there,)))) for one, there in made]
    assert found == [of_blocks, of_stage, of_stage, of_stage]


def test_effects_that_cannot_be_told_apart_are_all_named_the_likeliest_first() -> None:
    effects = [
        THERE._replace(id=name, likelihood=value) for name, value in (("b", 4985.0), ("a", 5000.0), ("c", 4900.0))
    ]
    assert [one.id for one in known_effects(replace(BLOCKS, effects=tuple(effects)))] == ["a", "b"]
    assert THERE._replace(error=math.inf).z == 0.0
