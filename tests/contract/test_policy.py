"""When decoding stops, and the n-gram rule against transformers' own."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import NoRepeatNGramLogitsProcessor

from pytest_dsocr.contract import policy
from pytest_dsocr.contract.policy import DecodePolicy, DsocrWarning, NgramBan
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError
from tests.contract.recorded_inputs import RECORDED

VOCABULARY = 5


def test_the_defaults_are_what_the_vendor_hands_to_generate() -> None:
    plain, evaluation = RECORDED["generate"]["infer"], RECORDED["generate"]["infer_eval_mode"]
    mine = DecodePolicy(eos_id=1)
    assert mine.eos_id == plain["eos_token_id"]
    assert mine.no_repeat_ngram_size == plain["no_repeat_ngram_size"]
    assert mine.max_new_tokens == DEFAULT.decoding.max_new_tokens == plain["max_new_tokens"]
    assert evaluation == plain | {"no_repeat_ngram_size": 35, "streamer": False}
    known = {"eos_token_id", "no_repeat_ngram_size", "max_new_tokens", "temperature", "use_cache", "streamer"}
    assert plain.keys() == known, "another stop criterion or a sampler would be a part of the policy"
    assert plain["temperature"] == 0


def test_the_ceiling_is_the_models_own_limit() -> None:
    assert DecodePolicy(1).for_model(1, 4096) == DecodePolicy(1, max_new_tokens=4096)


def test_the_fallback_is_warned_about_once() -> None:
    policy._warn_of_fallback.cache_clear()
    with pytest.warns(DsocrWarning, match="8192.*max_new_tokens") as caught:
        assert DecodePolicy(1).for_model(1, None) == DecodePolicy(1)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        DecodePolicy(1).for_model(1, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens=0 leaves nothing"),
        ({"no_repeat_ngram_size": -1}, "no_repeat_ngram_size=-1 is no length"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(change: dict[str, int], message: str) -> None:
    with pytest.raises(DsocrError, match=message):
        replace(DecodePolicy(1), **change)


@given(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=60), st.integers(1, 6), st.integers(0, 60))
@settings(max_examples=300, deadline=None)
def test_bans_are_transformers(tokens: list[int], size: int, prompt_length: int) -> None:
    ban = NgramBan(size, tokens[:prompt_length])
    for token in tokens[prompt_length:]:
        ban.push(token)
    assert ban.banned() == banned_by_transformers(tokens, size)


@pytest.mark.parametrize("size", [20, 35])
def test_bans_are_transformers_on_a_long_loop(size: int) -> None:
    """Period 7 with a slip now and then: long n-grams repeat, and some have two followers."""
    tokens = [1 + index % 7 if index % 43 else 8 for index in range(400)]
    ban, fired = NgramBan(size), 0
    for length, token in enumerate(tokens, start=1):
        ban.push(token)
        theirs = banned_by_transformers(tokens[:length], size, vocabulary=9)
        assert ban.banned() == theirs
        fired += bool(theirs)
    assert fired > 50


@pytest.mark.parametrize(("size", "repeats"), [(20, 20), (35, 35)])
def test_a_loop_of_one_token_is_cut_after_exactly_n(size: int, repeats: int) -> None:
    ban, said = NgramBan(size, [0, 3, 4]), 0
    while 7 not in ban.banned():
        ban.push(7)
        said += 1
    assert said == repeats


def test_the_prompt_counts() -> None:
    assert NgramBan(3, [5, 6, 7, 5, 6]).banned() == [7]


def test_zero_bans_nothing() -> None:
    assert NgramBan(0, [1] * 100).banned() == []


def banned_by_transformers(tokens: list[int], size: int, vocabulary: int = VOCABULARY) -> list[int]:
    scores = NoRepeatNGramLogitsProcessor(size)(torch.tensor([tokens]), torch.zeros(1, vocabulary))
    return torch.isinf(scores[0]).nonzero().flatten().tolist()
