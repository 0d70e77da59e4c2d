"""When decoding stops, and the n-gram rule against transformers' own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import NoRepeatNGramLogitsProcessor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.policy import DecodePolicy, NgramBan
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from tests.contract.recorded import INPUTS


def policy(eos_id: int, no_repeat_ngram_size: int = 20, max_new_tokens: int = 8192, **more: int) -> DecodePolicy:
    return DecodePolicy(eos_id, no_repeat_ngram_size, max_new_tokens, **more)


def test_the_defaults_are_what_the_vendor_hands_to_generate() -> None:
    plain, evaluation = (INPUTS[DEEPSEEK_OCR]["generate"][way] for way in ("infer", "infer_eval_mode"))
    assert evaluation == plain | {"no_repeat_ngram_size": 35, "streamer": False}
    own = DEEPSEEK_OCR.decoding
    assert plain == {
        "eos_token_id": own.eos_id,
        "no_repeat_ngram_size": own.no_repeat_ngram_size,
        "max_new_tokens": own.max_new_tokens,
        "temperature": 0,
        "use_cache": plain["use_cache"],
        "streamer": plain["streamer"],
    }, "another stop criterion or a sampler would be a part of the policy"


def test_the_ceiling_is_the_models_own_limit_or_the_familys() -> None:
    assert policy(1).for_model(2, 4096) == policy(2, max_new_tokens=4096)
    assert policy(1).for_model(1, None) == policy(1)
    whole = policy(1, max_new_tokens=30, max_length=40)
    assert whole.for_model(2, 4096) == policy(2, max_new_tokens=30, max_length=4096)
    assert [whole.room(prompt) for prompt in (1, 10, 39)] == [30, 30, 1]
    with pytest.raises(DsocrError, match="a prompt of 40 tokens leaves none of 40"):
        whole.room(40)


def test_a_policy_that_cannot_be_is_refused() -> None:
    with pytest.raises(DsocrError, match="max_new_tokens=0 leaves nothing"):
        policy(1, max_new_tokens=0)
    with pytest.raises(DsocrError, match="no_repeat_ngram_size=-1 is no length"):
        policy(1, no_repeat_ngram_size=-1)


def banned_by_transformers(tokens: list[int], size: int, vocabulary: int) -> list[int]:
    scores = NoRepeatNGramLogitsProcessor(size)(torch.tensor([tokens]), torch.zeros(1, vocabulary))
    return torch.isinf(scores[0]).nonzero().flatten().tolist()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 6), st.integers(0, 60))
@settings(max_examples=300)
def test_bans_are_transformers(tokens: list[int], size: int, prompt_length: int) -> None:
    ban = NgramBan(size, tokens[:prompt_length])
    for token in tokens[prompt_length:]:
        ban.push(token)
    assert ban.banned() == banned_by_transformers(tokens, size, 5)
    assert NgramBan(0, tokens).banned() == []


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(1, 6), st.integers(0, 40))
@settings(max_examples=300)
def test_in_a_window_only_what_begins_there_counts(tokens: list[int], size: int, window: int) -> None:
    within = tokens[-window:] if window else []
    prefix, last = tokens[len(tokens) - size + 1 :], range(len(within) - size + 1)
    expected = {within[at + size - 1] for at in last if len(tokens) >= size and within[at : at + size - 1] == prefix}
    assert NgramBan(size, tokens, window).banned() == sorted(expected)
