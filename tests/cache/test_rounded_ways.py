"""Two ways of a subject in bf16: held to the vendor's rounding, not to a constant, and its faults still found."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.rounding import Rounder
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.named import first_pages
from pytest_dsocr.records.config import Setup
from pytest_dsocr.subjects.engine import EngineSubject
from suites.cache import test_ways
from suites.cache.conftest import _without_gradients  # noqa: F401 - is used by every test here
from suites.cache.scale import RoundingScale
from suites.cache.walk import Walk
from suites.cache.ways import Ways
from tests.cache.faulty import changed

SETUP = Setup("synthetic:tiny", dtype="bfloat16")
GIVEN: dict[str, dict[str, Any]] = {
    "test_step_by_step_is_one_call": {},
    "test_going_on_from_a_cache_is_one_call": {"prefilled": 1},
    "test_the_cache_holds_the_same_by_either_way": {"kind": "values"},
}
Make = Callable[[Engine[Any]], EngineSubject]


@cache
def engine(attention: str) -> Engine[Any]:
    return Engine.from_checkpoint(SETUP.checkpoint, dtype=SETUP.dtype, attention=attention)


@pytest.fixture(scope="module")
def page() -> Path:
    return first_pages(["dev-3"], 1)[0]


@pytest.fixture(scope="module")
def scale(page: Path) -> RoundingScale:
    return RoundingScale(Rounder(SETUP, 0.0), page, DEEPSEEK_OCR)


def judged(test: str, subject: EngineSubject, page: Path, scale: RoundingScale) -> list[Comparison]:
    walk, found = Walk.along(subject, page, family=DEEPSEEK_OCR), list[Comparison]()
    ways = Ways(tolerances(SETUP.dtype), frozenset(), scale, walk.wobble)
    getattr(test_ways, test)(**GIVEN[test], walk=walk, ways=ways, dsocr_check=found.extend)
    assert found
    return found


@pytest.mark.parametrize("test", GIVEN)
def test_another_attention_is_right_where_the_vendors_ways_agree_to_the_bit(
    test: str, page: Path, scale: RoundingScale
) -> None:
    same, other = (judged(test, EngineSubject(engine(name)), page, scale) for name in ("eager", "sdpa"))
    assert {one.verdict for one in same} == {Verdict.MATCH}, "on a CPU both ways of the vendor's are equal"
    assert all(one.passes for one in other)
    assert Verdict.DRIFT in {one.verdict for one in other}


FAULTS: dict[str, Make] = {
    "louder in steps": changed(step=lambda step, *given: step(*given) * 1.15),
    "takes another token": changed(step=lambda step, state, token: step(state, token + 1)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_subject_is_found(fault: str, page: Path, scale: RoundingScale) -> None:
    subject = FAULTS[fault](engine("eager"))
    tests = (test for test in GIVEN if not all(one.passes for one in judged(test, subject, page, scale)))
    assert next(tests, None), "no test sees it"


class Wobbles(EngineSubject):
    """Changes each step's logits by chance, as sums in no fixed order do."""

    by = 2**-8

    def step(self, state: Any, token: int) -> Tensor:
        logits = super().step(state, token)
        return logits * (1 + torch.randn_like(logits) * self.by)


def test_a_subject_that_is_not_deterministic_is_held_to_its_own_rounding_too(page: Path, scale: RoundingScale) -> None:
    subject = Wobbles(engine("eager"))
    assert 2**-9 < Walk.along(subject, page, family=DEEPSEEK_OCR).wobble < 2**-6
    assert all(one.passes for one in judged("test_step_by_step_is_one_call", subject, page, scale))


def test_chance_beyond_rounding_is_a_fault(page: Path, scale: RoundingScale) -> None:
    subject = Wobbles(engine("eager"))
    subject.by = 2**-3
    assert not all(one.passes for one in judged("test_step_by_step_is_one_call", subject, page, scale))
