"""A loop that feeds a token again is recognised by its text, and no way is named that another page refutes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.engine.pipeline import pick
from pytest_dsocr.explain.choices import describe_choices
from pytest_dsocr.explain.feeding import FED
from pytest_dsocr.explain.question import PageRead
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import make_case
from pytest_dsocr.reference.protocol import pack_case
from tests.describe.real import CUT, PAGE, engine

Feeding = Callable[[Sequence[int], Sequence[int]], list[int]]
"""Return the tokens to feed for the next choice, from the prompt and the tokens that were chosen."""
MOST = 60


def read(page: Any, feed: Feeding) -> PageRead:
    """Read a page by a loop that feeds tokens in its own way."""
    case = make_case(page, "free", "tiny", MOST, family=DEEPSEEK_OCR)
    packed, own = pack_case(case), engine()
    inputs = own.prepare(page, prompt=case.prompt, preset=case.preset)
    prompt = inputs.input_ids[0].tolist()
    texts = []
    for way in (_right, feed):
        state, ban, tokens = own.pipeline.prefill(inputs), own.policy.ban(prompt), list[int]()
        with torch.no_grad():
            while len(tokens) < MOST and own.policy.eos_id not in tokens[-1:]:
                for token in way(prompt, tokens):
                    own.pipeline.decode_step(state, [token])
                tokens += pick(state.logits, [ban.banned()])
                ban.push(tokens[-1])
        texts.append(tokens)
    right, tokens = texts
    text = clean_output(own.tokenizer.decode(tokens))
    made = PageRead({**packed, "preset": dict(packed["preset"])}, text, tuple(right))
    return replace(made, is_right=right == tokens)


def _right(prompt: Sequence[int], said: Sequence[int]) -> list[int]:
    return [*said[-1:]]


def _twice(step: int) -> Feeding:
    return lambda prompt, said: [*said[-1:]] * (2 if len(said) == step else 1)


FEEDINGS: dict[str, tuple[Feeding, str]] = {
    "prompt's last": (lambda prompt, said: [*said[-1:]] or [prompt[-1]], "the prompt's last token "),
    "prompt's last two": (
        lambda prompt, said: [*said[-1:]] or [*prompt[-2:]],
        "the prompt's last 2 tokens are fed again",
    ),
    "each": (lambda prompt, said: [*said[-1:], *said[-1:]], "each token is fed twice"),
    "the first": (_twice(1), "of step 1 is fed twice, at positions "),
}


@pytest.mark.parametrize(("feed", "words"), FEEDINGS.values(), ids=FEEDINGS)
def test_tokens_that_are_fed_otherwise_are_found(feed: Feeding, words: str) -> None:
    pages = [read(page, feed) for page in (CUT, PAGE)]
    wrong = [one for one in pages if not one.is_right]
    assert wrong
    [found] = describe_choices(engine(), wrong[0], is_sure=True)
    assert found.kind == FED
    assert words in found.text
    refuting = read(CUT if wrong[0] is pages[0] else PAGE, _right)  # the same page, read rightly
    assert not any(one.kind == FED for one in describe_choices(engine(), wrong[0], [refuting], is_sure=False))
    if len(wrong) == 2 and len(wrong[1].text) > MOST:  # not one that ends at once
        [found] = describe_choices(engine(), wrong[0], wrong[1:], is_sure=True)
        assert "so on 1 page read before" in found.text


def test_nothing_is_said_of_other_texts() -> None:
    text = read(PAGE, _right)
    other = replace(text, text=text.text.replace("e", "o"), is_right=False)
    assert not any(one.kind == FED for one in describe_choices(engine(), other, is_sure=True))
    assert describe_choices(engine(), text, is_sure=True) == []
