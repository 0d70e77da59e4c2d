"""A prefill that keeps keys and values of an earlier page is described by the slots and by that page."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pytest_dsocr.describe.tensors import EARLIER_PAGE
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.case import Case, make_case
from pytest_dsocr.records.config import Level, Setup
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.run.described_tensors import describe_case
from pytest_dsocr.run.resources import RunResources
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from tests.describe.real import engine
from tests.subjects.seen import judged, seen
from tests.subjects.spoilt import only

SETUP = Setup("mini")


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    """Return pages with prompts of equal length."""
    return [make_case(page, "free", "tiny", 2, family=DEEPSEEK_OCR) for page in shipped("dev-3")]


@pytest.fixture(scope="module")
def expected(cases: list[Case]) -> ReferenceResult:
    """Return what an engine without a mistake has of the last page, with the blocks' tensors."""
    right = seen(engine(), cases[2])
    return replace(right, seams=run_teacher_forced(EngineSubject(engine()), cases[2], right).seams)


@pytest.fixture(scope="module")
def explainer() -> Iterator[Explainer]:
    made = Explainer(SETUP, 20.0)
    yield made
    made.close()


class Taking(KVCache):
    """Takes some slots of other keys and values over."""

    other: Sequence[tuple[Tensor, Tensor]] = ()
    taken = slice(0)
    keys_alone = False

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        if not any(self.seen):
            keys, values = keys.clone(), values.clone()
            keys[:, :, self.taken] = self.other[layer][0][:, :, self.taken]
            if not self.keys_alone:
                values[:, :, self.taken] = self.other[layer][1][:, :, self.taken]
        return super().append(layer, keys, values, positions)


TAKEN = {
    "the first slots": (slice(0, 40), False, 0, "keys and values of layer 0: slots 1 to 39 are those of"),
    "keys alone": (slice(0, 40), True, 0, "keys of layer 0: slots 1 to 39 are those of"),
    "the last slots": (slice(20, 60), False, 0, "keys and values of layer 0: slots 20 to 59 are those of"),
    "the page two before": (slice(0, 40), False, 1, "keys and values of layer 0: slots 1 to 39 are those of"),
}


@pytest.mark.parametrize("level", [Level.MODULES, Level.STAGES])
@pytest.mark.parametrize(("slots", "keys_alone", "back", "words"), TAKEN.values(), ids=TAKEN)
def test_slots_of_an_earlier_page_are_found(
    slots: slice,
    keys_alone: bool,
    back: int,
    words: str,
    level: Level,
    cases: list[Case],
    expected: ReferenceResult,
    explainer: Explainer,
) -> None:
    model, earlier, resources = engine(), cases[1 - back], RunResources(SETUP, explainer)
    resources.read.extend(cases[:2])
    inputs = model.prepare(earlier.page, prompt=earlier.prompt, preset=earlier.preset)
    with torch.no_grad():
        there = model.prefill(inputs).cache
    other = [(there.keys(k).clone(), there.values(k).clone()) for k in range(there.layers)]

    def new_cache() -> Taking:
        cache = Taking(there.layers)
        cache.other, cache.taken, cache.keys_alone = other, slots, keys_alone
        return cache

    with Changes() as changes:
        changes.set(model.model, "new_cache", new_cache)
        subject = only(EngineSubject(model), level)
        found = describe_case(judged(subject, cases[2], expected), subject, resources)
    assert found[0][1].kind == EARLIER_PAGE
    assert f"{words} {earlier.id}, which was read before" in found[0][1].text
