"""The markup reader on what no model should write: it raises nothing, keeps to the vendor's rule, and stays linear."""

from __future__ import annotations

import ast
import re
import signal
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsocr.contract.drawing import place
from pytest_dsocr.contract.literal import read_literal
from pytest_dsocr.contract.markup import LARGEST, Box, find_spans, parse, read_boxes
from pytest_dsocr.contract.mmd import to_mmd
from tests.contract.fuzzing import fuzz
from tests.vendor_live.outputs import span

SPAN = re.compile(r"<\|ref\|>(?P<label>.*?)<\|/ref\|><\|det\|>(?P<coordinates>.*?)<\|/det\|>", re.DOTALL)
OPEN, CLOSE = "<|ref|>a<|/ref|><|det|>", "<|/det|>"
MARKS = ["<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>"]
PIECES = [*MARKS, "<|/ref|><|det|>", "<|", "|>", "ref", "/det", "<", "image", "[[1, 2, 3, 4]]", "\n", "\0", "稀"]
WHOLE = [OPEN, CLOSE, span("image", "[[1, 2, 3, 4]]"), span("te\nxt", "[[5, 6]]"), span("a<|/det|>", "<|ref|>")]
marked_text = st.lists(st.sampled_from(PIECES + WHOLE) | st.text(max_size=3), max_size=60).map("".join)

number = st.one_of(
    st.integers(-2000, 2000).map(str),
    st.floats(-LARGEST, LARGEST, exclude_min=True, exclude_max=True).map(repr),
    st.sampled_from(["0x1f", "1_000", "1e400", "-0", "+7", "- 3", "007.", ".5", "1" * 400, "01", "1__0", "nan", "inf"]),
)
blank = st.text(alphabet=" \n\t\r\f", max_size=2)
box = st.builds(
    "{}{}{}{}".format, blank, st.sampled_from("[("), st.lists(number, min_size=3, max_size=5).map(", ".join), blank
)
coordinates = st.lists(box.map(lambda text: text + ("]" if "[" in text else ")")), max_size=4).map(
    lambda boxes: f"[{','.join(boxes)}]"
)
odd_literal = st.lists(
    st.sampled_from([*"[](){},:+-.'\"\\ \n1_xeE", "0x", "1e", "None", "True", "line", "稀"]), max_size=30
).map("".join)

GUARD_S = 90
MEGABYTE = 1_000_000
# Each is (before, what is repeated, after).
HOSTILE = {
    "open labels": ("", "<|ref|>", ""),
    "open labels and joins": ("", "<|ref|><|/ref|><|det|>", ""),
    "open labels, the last one closed": ("", "<|ref|>", OPEN + CLOSE),
    "closing marks": ("", "<|/det|><|/ref|>", ""),
    "half marks": ("", "<|ref|", ""),
    "nulls": ("", "\0", ""),
    "nulls as coordinates": (OPEN, "\0", CLOSE),
    "open brackets": (OPEN, "[", CLOSE),
    "closing brackets": (OPEN, "]", CLOSE),
    "a long decimal": (OPEN + "[[1, 2, 3, ", "9", "]]" + CLOSE),
    "a long hexadecimal": (OPEN + "[[1, 2, 3, 0x", "f", "]]" + CLOSE),
    "a long fraction": (OPEN + "[[1, 2, 3, 0.", "1", "]]" + CLOSE),
    "a long exponent": (OPEN + "[[1, 2, 3, 1e", "9", "]]" + CLOSE),
    "underscores": (OPEN, "1_", CLOSE),
    "blanks": (OPEN + "[", " ", "x" + CLOSE),
    "an open string": (OPEN + "'", "\\a", CLOSE),
}
LABORIOUS = {
    "empty spans": ("", OPEN + CLOSE, ""),
    "spans": ("", span("image", "[[1, 2, 3, 4]]"), ""),
    "boxes": (OPEN + "[", "[1, 2, 3, 4],", "]" + CLOSE),
    "numbers": (OPEN + "[", "1,", "]" + CLOSE),
    "signs": (OPEN, "-", "1" + CLOSE),
    "open labels": ("", "<|ref|>", ""),
}


def of_size(size: int, parts: tuple[str, str, str]) -> str:
    before, repeated, after = parts
    return before + repeated * (size // len(repeated)) + after


@fuzz
@given(marked_text)
def test_spans_are_those_of_the_regular_expression(text: str) -> None:
    expected = [(m.start(), m.end("label"), m.start("coordinates"), m.end()) for m in SPAN.finditer(text)]
    assert list(find_spans(text)) == expected


@fuzz
@given(marked_text)
def test_any_text_is_read_and_none_of_it_is_lost(text: str) -> None:
    markup = parse(text)
    ends = [0, *(span.end for span in markup.spans)]
    starts = [*(span.start for span in markup.spans), len(text)]
    outside = [text[end:start].strip() for end, start in zip(ends, starts, strict=True)]
    assert [markup.preamble, *(span.text for span in markup.spans)] == outside
    assert all(text[span.start : span.end] == span.raw for span in markup.spans)
    assert markup.problems or not any(mark in part for part in outside for mark in MARKS)
    place(markup.spans, 640, 480)
    to_mmd(text)


@fuzz
@given(coordinates)
def test_boxes_are_those_that_python_would_read(text: str) -> None:
    boxes, problem = read_boxes(text)
    assert list(boxes) == _python_boxes(text)
    assert problem is not None or len(boxes) > 0


@pytest.mark.filterwarnings("ignore:invalid escape sequence", "ignore:.*is an invalid escape sequence")
@fuzz
@given(odd_literal)
def test_a_literal_is_pythons_or_refused(text: str) -> None:
    try:
        value = read_literal(text)
    except ValueError:
        return
    if not re.search(r"[-+]\s*[-+]", text):  # several signs are for evaluation only
        assert repr(value) == repr(ast.literal_eval(text.strip(" \t\r\n\f")))


@pytest.mark.parametrize("name", HOSTILE)
def test_eight_hostile_megabytes_are_read_in_linear_time(name: str) -> None:
    with _guard():
        parse(of_size(8 * MEGABYTE, HOSTILE[name]))


@pytest.mark.parametrize("name", LABORIOUS)
def test_memory_stays_in_proportion(name: str) -> None:
    text = of_size(MEGABYTE // 8, LABORIOUS[name])
    tracemalloc.start()
    with _guard():
        parse(text)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 60 * len(text)


def _python_boxes(text: str) -> list[Box]:
    """The vendor's reading: evaluate, then take boxes until one cannot become pixels."""
    boxes: list[Box] = []
    try:
        for x1, y1, x2, y2 in ast.literal_eval(text):
            _ = [int(value / 999 * 640) for value in (x1, y1, x2, y2)]
            boxes.append(Box(x1, y1, x2, y2))
    except (ValueError, SyntaxError, TypeError, OverflowError):
        pass
    return boxes


@contextmanager
def _guard() -> Iterator[None]:
    """Stop what a quadratic reader would not finish in hours."""

    def stop(*_: object) -> None:
        pytest.fail(f"not finished after {GUARD_S} s: not linear")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(GUARD_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
