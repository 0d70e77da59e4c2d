"""A page's text under mistakes: known tokens are passed at once, to the same logits as step by step."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from pytest_dsocr.explain.catalogue import groups
from pytest_dsocr.explain.mistake import Changes, Mistake, Target
from pytest_dsocr.explain.question import PageRead
from pytest_dsocr.explain.texts import ONE_BY_ONE, Along, TextPage, copied
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import make_case
from pytest_dsocr.reference.protocol import pack_case
from tests.faults.trial import cases, loaded

TEXT = "<|ref|>title<|/ref|>"
RAISE = ("prefill.wholly-bfloat16", "prefill.wholly-float16")
"""What the readable engine cannot compute: its rotary positions stay in float32."""


@pytest.fixture(scope="module")
def page() -> TextPage:
    """A small view of the page that is read soonest, and a text of it."""
    packed = pack_case(make_case(cases()[0].page, "markdown", "tiny", family=DEEPSEEK_OCR))
    made = TextPage(loaded().engine, PageRead({**packed, "preset": dict(packed["preset"])}, TEXT, ()))
    assert made.state is not None, "made in front of every mistake"
    return made


def logits(page: TextPage, one: Mistake) -> Iterator[Tensor]:
    """Yield the logits after the prompt and each token ``[T, V]``: in steps, and passed at once from the third on."""
    model = page.engine.pipeline
    with Changes() as changes, torch.no_grad():
        prefilled = page.prefilled(one, changes)
        assert prefilled is not None
        for along in (model, Along(model, page.ids, 2)):
            state = copied(prefilled[1])
            found = [state.logits]
            for token in page.ids:
                along.decode_step(state, [token])
                found.append(state.logits)
            yield torch.cat(found)


def test_tokens_that_are_known_are_passed_at_once_to_what_steps_give(page: TextPage) -> None:
    raised, other = [], []
    for one in groups(DEEPSEEK_OCR)["prefill"]:
        try:
            stepped, passed = logits(page, one)
        except Exception:
            raised.append(one.id)
            continue
        apart = ((stepped - passed).abs().max() / stepped.abs().max()).nan_to_num()
        if apart > 5e-3 and not ONE_BY_ONE.match(one.id):
            other.append(one.id)
    assert (tuple(raised), other) == (RAISE, [])


def test_tokens_that_others_are_fed_in_place_of_are_forgotten(page: TextPage) -> None:
    right, (first, second, *_), model = page.copied(), page.ids, page.engine.pipeline
    for token in (first, second + 1, second):
        model.decode_step(right, [token])
    state, along = page.copied(), Along(model, page.ids, 0)
    for token in (first, second + 1, second):
        along.decode_step(state, [token])
    assert state.cache.lengths == right.cache.lengths
    torch.testing.assert_close(state.logits, right.logits)


def test_what_lies_behind_the_blocks_of_sam_is_computed_alone_to_the_same(page: TextPage) -> None:
    for one in groups(DEEPSEEK_OCR)["sam"].of("back")[1::16]:
        with Changes() as changes, torch.no_grad():
            alone = page.prefilled(one, changes)
        with Changes() as changes:
            one.plant(Target.of_stage(page.engine, changes, "sam"))
            whole = page.engine.pipeline.prefill(page.clean.inputs).logits
        torch.testing.assert_close(page.state.logits if alone is None else alone[1].logits, whole, rtol=1e-3, atol=1e-3)
