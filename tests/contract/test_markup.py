"""Tests of parsing: it agrees with the vendor's, and no text is lost, misread or slow to parse."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsocr.contract.drawing import place
from pytest_dsocr.contract.markup import (
    LONGEST,
    OutputForm,
    clean_output,
    find_spans,
    parse,
    read_boxes,
    to_mmd,
    to_pixels,
)
from pytest_dsocr.contract.prompt import EOS
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from tests.contract.fuzzing import fuzz
from tests.contract.recorded import IMAGE, TEXT, UNLIMITED, Recorded, each_recorded_output, span

SPAN = re.compile(r"<\|ref\|>(?P<label>.*?)<\|/ref\|><\|det\|>(?P<coordinates>.*?)<\|/det\|>", re.DOTALL)
DET = re.compile(r"<\|det\|>\s*(?P<label>[A-Za-z_][\w-]*)\s*(?P<coordinates>\[[^\]]+\])\s*<\|/det\|>")
EXPRESSIONS = {DEEPSEEK_OCR.form: (SPAN,), UNLIMITED: (SPAN, DET)}
OPEN, CLOSE = "<|ref|>a<|/ref|><|det|>", "<|/det|>"
MARKS = ["<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>"]
PIECES = [*MARKS, "<|/ref|><|det|>", "<|", "|>", "<", "image", "[[1, 2, 3, 4]]", "\n", "\0", "稀", "\\colon", "eqq"]
IN_DET = ["<|det|>a [", "]<|/det|>", "[1, 2, 3, 4]", "<|det|> b-1\n[5, 6, 7, 8] <|/det|>", "[]", "]", "\u3000", "-"]
WHOLE = [*IN_DET, OPEN, CLOSE, IMAGE, span("te\nxt", "[[5, 6]]"), span("a<|/det|>", "<|ref|>"), span("\\coloneqq", "2")]
marked_text = st.lists(st.sampled_from(PIECES + WHOLE) | st.text(max_size=3), max_size=60).map("".join)


@each_recorded_output
def test_spans_and_boxes_are_the_vendors(recorded: Recorded) -> None:
    form = recorded.form
    spans, pixels = [], []
    for text, size in recorded.read:
        spans += [[text[one.start : one.end], one.label, one.coordinates] for one in find_spans(text, form)]
        pixels += [list(to_pixels(box, *size)) for span in parse(text, form).spans for box in span.boxes]
    assert spans == recorded.spans
    assert pixels == recorded.outlines


@fuzz
@given(marked_text, st.sampled_from(tuple(EXPRESSIONS)))
def test_spans_are_those_of_the_regular_expressions_and_no_text_is_lost(text: str, form: OutputForm) -> None:
    found = [match for expression in EXPRESSIONS[form] for match in expression.finditer(text)]
    expected = [(one.start(), one.end(), one["label"], one["coordinates"]) for one in found]
    assert list(find_spans(text, form)) == expected
    markup = parse(text, form)
    assert [(span.start, span.end) for span in markup.spans] == [one.span() for one in found]
    covered = {place for one in found for place in range(*one.span())}
    starts = sorted(one.start() for one in found)
    for one in markup.spans:
        following = min((start for start in starts if start >= one.end), default=len(text))
        assert one.text == text[one.end : following].strip()
    outside = "".join(c if place not in covered else "\0" for place, c in enumerate(text))
    assert markup.problems or not any(mark in outside for mark in MARKS)
    place(markup.spans, 640, 480)


@pytest.mark.parametrize(
    ("text", "boxes", "problem"),
    [
        ("[[1, 2.5, 0x10, True], (5.5, -6, 7, 8)]", 2, None),
        ("[[1, 2, 3, 4], [5, 6], [7, 8, 9, 10]]", 1, "box 1 .* is not four finite numbers"),
        ("[[1, 2, 3, -1e300]]", 0, "box 0"),
        ("['abcd']", 0, "box 0"),
        ("[[1, 2, 3, 4]", 0, "cannot be read"),
        ("[[__import__('os').system('true'), 2, 3, 4]]", 0, "cannot be read"),
        ("{[]: 1}", 0, "cannot be read"),
        ("\0", 0, "cannot be read"),
        ("", 0, "cannot be read"),
        ("[" * 1000 + "]" * 1000, 0, "cannot be read"),
        ("-" * 50_000 + "1", 0, "cannot be read"),
        ("1+" * 40_000 + "1", 0, "cannot be read"),
        ("[]", 0, "no list of boxes"),
        (r"'\square ABC'", 0, "no list of boxes"),
        ("{'a': 1}", 0, "no list of boxes"),
        ("[" + "[1, 2, 3, 4]," * (LONGEST // 13 + 1) + "]", 0, "cannot be read"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_a_bad_box_ends_its_span_and_is_reported(text: str, boxes: int, problem: str | None) -> None:
    read, found = read_boxes(text, DEEPSEEK_OCR.form)
    assert len(read) == boxes
    assert found is None if problem is None else re.search(problem, found or "")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("ab" + span("x", "[[1, 2, 3, 4]]") + span("y", "?"), ["span 1 at offset 47: coordinates '\\?' cannot be"]),
        ("<|ref|>a " + span("x", "[[1, 2, 3, 4]]"), ["span 0 at offset 0: label .* holds a <|ref|>"]),
        ("<|ref|>a<|/ref|> <|ref|>", ["2 <|ref|> outside any span", "1 <|/ref|> outside any span"]),
        (span("<|ref|>" * 9000, "[[1, 2, 3, 4]]"), ["span 0 at offset 0: label .{,120}$"]),
        (span("see <|det|>a [1, 2, 3, 4]<|/det|> there", "[[1, 2, 3, 4]]"), []),
        ("plain", []),
    ],
    ids=["coordinates", "open label", "marks", "a megabyte", "a span in a label", "none"],
)
def test_what_the_vendor_drops_in_silence_is_a_problem(text: str, problems: list[str]) -> None:
    found = parse(text, UNLIMITED).problems
    assert len(found) == len(problems)
    for message, start in zip(found, problems, strict=True):
        assert re.match(start.replace("|", r"\|"), message), message


@pytest.mark.parametrize(
    ("text", "cleaned"), [(f" a {EOS}", "a"), (f"a{EOS}{EOS}", f"a{EOS}"), (f"a{EOS} ", f"a{EOS}"), ("\u3000a\n", "a")]
)
def test_one_end_token_goes_then_the_blanks(text: str, cleaned: str) -> None:
    assert clean_output(text) == cleaned


@pytest.mark.parametrize(
    "repeated",
    ["<|det|>a[", "<|det|>a[1]  ", "<|det|>     a", "<|ref|>", "<|ref|><|/ref|><|det|>", "<|/det|><|/ref|>", "\0"],
)
@pytest.mark.parametrize(("before", "after"), [("", ""), (OPEN, CLOSE)], ids=["outside", "as coordinates"])
def test_hostile_megabytes_are_read_in_linear_time(before: str, repeated: str, after: str) -> None:
    with _guard():
        parse(before + repeated * (4_000_000 // len(repeated)) + after, UNLIMITED)


def test_a_bracket_that_is_closed_far_off_is_looked_for_once() -> None:
    with _guard():
        parse("<|det|>a[" * 200_000 + "]" + " " * 2_000_000, UNLIMITED)


def test_megabytes_of_equal_spans_take_one_replacement() -> None:
    """100,000 replacements in a text of this length would take a quarter of an hour."""
    with _guard():
        assert "<|" not in to_mmd(f"{TEXT}{IMAGE}" * 50_000 + "end", DEEPSEEK_OCR.form)


@contextmanager
def _guard() -> Iterator[None]:
    """Stop what a quadratic reader would not finish in hours."""

    def stop(*_: object) -> None:
        pytest.fail("not finished after 90 s: not linear")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(90)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
