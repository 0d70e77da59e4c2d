"""The tokenizer: any text comes back, and what pages say takes one token a word."""

from __future__ import annotations

import re
from itertools import pairwise
from string import ascii_lowercase, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.training.generator import generate
from ci.training.lexicon import FIRST_WORDS, LABELS, MARKUP, WORDS
from ci.training.vocabulary import mini_vocabulary, number_ids
from pytest_dsocr.contract.markup import DET, DET_END, REF, REF_END
from pytest_dsocr.contract.prompt import PROMPTS
from pytest_dsocr.engine.places import MINI_FOLDER
from pytest_dsocr.engine.tokenizer import BYTE_SYMBOLS, FIRST_BYTE_ID, Tokenizer
from tests.contract.fuzzing import fuzz
from tests.training.small import BACKEND

TOKENIZER = Tokenizer.over(BACKEND)
BYTE_IDS = range(FIRST_BYTE_ID, FIRST_BYTE_ID + len(BYTE_SYMBOLS))
SPELT = {*digits, *ascii_lowercase, *" .,:%$/"}
"""Characters of pages' answers that are a byte each: a digit by itself, signs, and the letters of what is spelt."""
PIECES = st.sampled_from((*WORDS, *FIRST_WORDS, *LABELS, *MARKUP, REF, DET_END, "<image>", "<td>", " ", "\n\n", "], ["))


def spelt_words(ids: list[int]) -> list[str]:
    """Give every two letters of a word that are a token each."""
    pieces = [TOKENIZER.decode([token]) for token in ids]
    return [a + b for a, b in pairwise(pieces) if len(a) == len(b) == 1 and (a + b).isalpha()]


@fuzz
@given(text=st.text() | st.lists(PIECES | st.integers(0, 99_999).map(str) | st.text(max_size=3)).map("".join))
def test_any_text_comes_back(text: str) -> None:
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_every_number_is_a_token() -> None:
    assert [TOKENIZER.encode(str(n)) for n in range(1000)] == [[token] for token in number_ids(BACKEND)]
    assert len(set(number_ids(BACKEND))) == 1000


@pytest.mark.parametrize("word", [*WORDS, *FIRST_WORDS])
def test_every_form_of_a_word_is_a_token(word: str) -> None:
    forms = {word.capitalize(), f" {word.capitalize()}", f" {word}"}
    ids = {token for form in forms for token in TOKENIZER.encode(form)}
    assert len(ids) == len(forms)
    assert not ids & {*BYTE_IDS}
    assert {*TOKENIZER.encode(f"{word.capitalize()} {word.capitalize()} {word}.")} == ids | {*TOKENIZER.encode(".")}


@pytest.mark.parametrize("text", [*LABELS, *MARKUP, REF, REF_END, DET, DET_END, "[[", "], [", "]]", ", ", "\n\n"])
def test_what_layout_is_written_with_is_a_token(text: str) -> None:
    [token] = TOKENIZER.encode(text)
    assert token not in BYTE_IDS


def test_a_box_is_four_numbers_and_what_is_between() -> None:
    ids = TOKENIZER.encode(f"{REF}title{REF_END}{DET}[[0, 71, 500, 999]]{DET_END}\n# Amber")
    assert [TOKENIZER.decode([token]) for token in ids] == [
        REF, "title", REF_END, DET, "[[", "0", ", ", "71", ", ", "500", ", ", "999", "]]", DET_END, "\n", "# ", "Amber"
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_an_answer_is_spelt_in_bytes_only_where_listed(seed: int) -> None:
    page = generate(seed)
    for grounded in (True, False):
        answer = page.answer(grounded=grounded)
        pieces = [TOKENIZER.decode([token]) for token in TOKENIZER.encode(answer)]
        assert "".join(pieces) == answer
        assert {piece for piece in pieces if len(piece) == 1} <= SPELT | {"\n"}
        assert not spelt_words(TOKENIZER.encode(re.sub(", [a-z]+", "", answer)))


def test_a_word_behind_a_comma_is_spelt() -> None:
    assert spelt_words(TOKENIZER.encode("Amber, the soup.")) == ["th", "he"]


def test_words_of_the_prompts_are_tokens() -> None:
    for prompt in PROMPTS.values():
        assert not spelt_words(TOKENIZER.encode(prompt))


def test_special_ids_are_the_vendors_where_it_hard_codes_them() -> None:
    special = TOKENIZER.special
    assert (special.bos, special.eos, special.pad) == (0, 1, 2)
    assert special.image not in BYTE_IDS


def test_the_shipped_tokenizer_is_this_one() -> None:
    assert (MINI_FOLDER / "tokenizer.json").read_text(encoding="utf-8") == mini_vocabulary().to_str(pretty=True)
