from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsocr.contract.mmd import clean_output, to_mmd
from pytest_dsocr.contract.prompt import EOS
from tests.contract.recorded_outputs import Recorded, each_recorded_output
from tests.vendor_live.outputs import IMAGE, TEXT, span

SPANS = [
    span("image", "1"),
    span("a", "2"),
    span("\\coloneqq", "2"),
    span("x <|ref|>image", "3"),
    span("a", span("a", "2")[:-8]),
    "<|ref|>q " + span("a", "2"),
]
FRAGMENTS = [
    *SPANS,
    "<|ref|>",
    "<|/ref|>",
    "<|det|>",
    "<|/det|>",
    "<|re",
    "f|>",
    "|>",
    "\\colon",
    "eqq",
    "\\eqqcolon",
    "a",
    "\n",
]


@each_recorded_output
def test_result_mmd_is_the_vendors_byte_for_byte(recorded: Recorded) -> None:
    assert to_mmd(recorded.text).encode() == recorded.mmd.encode()


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=24).map("".join))
def test_skipping_spans_that_are_gone_changes_nothing(text: str) -> None:
    assert to_mmd(text) == _one_span_at_a_time(text)


@pytest.mark.parametrize("text", [TEXT, IMAGE, f"{TEXT}{IMAGE}"])
def test_megabytes_of_equal_spans_take_one_replacement(text: str) -> None:
    # 100,000 replacements in a text of this length would take a quarter of an hour.
    assert "<|" not in to_mmd(text * 100_000 + "end")


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (f" a {EOS}", "a"),
        (f"a{EOS}{EOS}", f"a{EOS}"),
        (f"a{EOS} ", f"a{EOS}"),
        (EOS, ""),
        ("\u3000a\n", "a"),
    ],
)
def test_one_end_token_goes_then_the_blanks(text: str, cleaned: str) -> None:
    assert clean_output(text) == cleaned


def _one_span_at_a_time(text: str) -> str:
    """The rule itself, with a regular expression and without any saving of work."""
    output = clean_output(text)
    spans = re.findall(r"(?s)<\|ref\|>.*?<\|/ref\|><\|det\|>.*?<\|/det\|>", output)
    figures = [text for text in spans if "<|ref|>image<|/ref|>" in text]
    for number in range(len(figures)):
        output = output.replace(figures[number], f"![](images/{number}.jpg)\n")
    for text in spans:
        if text not in figures:
            output = output.replace(text, "")
            output = output.replace(r"\coloneqq", ":=").replace(r"\eqqcolon", "=:")
    return output
