"""Texts under mistakes: passing known tokens at once gives the same logits as single steps."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from pytest_dsocr.explain.along import Along, copied
from pytest_dsocr.explain.catalogue import groups
from pytest_dsocr.explain.mistake import Changes, Mistake, Target
from pytest_dsocr.explain.question import PageRead
from pytest_dsocr.explain.texts import TextPage
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import make_case
from pytest_dsocr.reference.protocol import pack_case
from tests.faults.trial import cases, loaded

TEXT = "<|ref|>title<|/ref|>"
RAISE = ("prefill.wholly-bfloat16", "prefill.wholly-float16")
"""Mistakes that the engine cannot compute, since its rotary positions stay in float32."""


@pytest.fixture(scope="module")
def page() -> TextPage:
    """Small view of the quickest page, with a text."""
    packed = pack_case(make_case(cases()[0].page, "markdown", "tiny", family=DEEPSEEK_OCR))
    made = TextPage(loaded().engine, PageRead({**packed, "preset": dict(packed["preset"])}, TEXT, ()))
    assert made.state is not None, "made before any mistake is planted"
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


@pytest.mark.dsocr_slow
def test_tokens_that_are_known_are_passed_at_once_to_what_steps_give(page: TextPage) -> None:
    raised, other = [], []
    for one in groups(DEEPSEEK_OCR)["prefill"]:
        try:
            stepped, passed = logits(page, one)
        except Exception:
            raised.append(one.id)
            continue
        apart = ((stepped - passed).abs().max() / stepped.abs().max()).nan_to_num()
        if apart > 5e-3 and not one.stepwise:
            other.append(one.id)
    assert (tuple(raised), other) == (RAISE, [])


def test_tokens_that_others_are_fed_in_place_of_are_forgotten(page: TextPage) -> None:
    right, (first, second, *_), model = copied(page.state), page.ids, page.engine.pipeline
    for token in (first, second + 1, second):
        model.decode_step(right, [token])
    state, along = copied(page.state), Along(model, page.ids, 0)
    for token in (first, second + 1, second):
        along.decode_step(state, [token])
    assert state.cache.lengths == right.cache.lengths
    torch.testing.assert_close(state.logits, right.logits)


def test_the_part_after_sams_blocks_gives_the_same_if_computed_alone(page: TextPage) -> None:
    for one in groups(DEEPSEEK_OCR)["sam"].of("back")[1::16]:
        with Changes() as changes, torch.no_grad():
            alone = page.prefilled(one, changes)
        with Changes() as changes:
            one.plant(Target.of_stage(page.engine, changes, "sam"))
            whole = page.engine.pipeline.prefill(page.clean.inputs).logits
        torch.testing.assert_close(page.state.logits if alone is None else alone[1].logits, whole, rtol=1e-3, atol=1e-3)


def test_a_place_is_a_token_that_the_engine_would_not_choose_and_not_one_of_the_text_encoded_again(
    page: TextPage,
) -> None:
    own = [*page.engine.run(page.case.page, prompt="markdown", preset="tiny", max_new_tokens=8).token_ids]
    page.said |= {"own": own, "end": [page.engine.policy.eos_id], "other": [*own[:3], own[3] + 1]}
    assert [page.places(name) for name in ("own", "end", "other", "of the text alone")] == [0, 1, 1, 1]
