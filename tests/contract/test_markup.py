"""What is read in an output, against the vendor's reading; and that no text is lost, misread or slow to read."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_dsocr.contract.drawing import place
from pytest_dsocr.contract.markup import LONGEST, clean_output, find_spans, parse, read_boxes, to_mmd, to_pixels
from pytest_dsocr.contract.prompt import EOS
from tests.contract.fuzzing import fuzz
from tests.contract.recorded import IMAGE, PAGE_SIZE, TEXT, Recorded, each_recorded_output, span

SPAN = re.compile(r"<\|ref\|>(?P<label>.*?)<\|/ref\|><\|det\|>(?P<coordinates>.*?)<\|/det\|>", re.DOTALL)
OPEN, CLOSE = "<|ref|>a<|/ref|><|det|>", "<|/det|>"
MARKS = ["<|ref|>", "<|/ref|>", "<|det|>", "<|/det|>"]
PIECES = [*MARKS, "<|/ref|><|det|>", "<|", "|>", "<", "image", "[[1, 2, 3, 4]]", "\n", "\0", "稀", "\\colon", "eqq"]
WHOLE = [OPEN, CLOSE, IMAGE, span("te\nxt", "[[5, 6]]"), span("a<|/det|>", "<|ref|>"), span("\\coloneqq", "2")]
marked_text = st.lists(st.sampled_from(PIECES + WHOLE) | st.text(max_size=3), max_size=60).map("".join)


@each_recorded_output
def test_spans_and_boxes_are_the_vendors(recorded: Recorded) -> None:
    markup = parse(clean_output(recorded.text))
    spans = [[one.raw, one.label, SPAN.fullmatch(one.raw)["coordinates"]] for one in markup.spans]  # type: ignore[index]
    assert spans == recorded.spans
    assert [list(to_pixels(box, *PAGE_SIZE)) for one in markup.spans for box in one.boxes] == recorded.outlines


@fuzz
@given(marked_text)
def test_spans_are_those_of_the_regular_expression_and_no_text_is_lost(text: str) -> None:
    expected = [(m.start(), m.end("label"), m.start("coordinates"), m.end()) for m in SPAN.finditer(text)]
    assert list(find_spans(text)) == expected
    markup = parse(text)
    ends = [0, *(span.end for span in markup.spans)]
    starts = [*(span.start for span in markup.spans), len(text)]
    outside = [text[end:start].strip() for end, start in zip(ends, starts, strict=True)]
    assert [markup.preamble, *(span.text for span in markup.spans)] == outside
    assert all(text[span.start : span.end] == span.raw for span in markup.spans)
    assert markup.problems or not any(mark in part for part in outside for mark in MARKS)
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
    read, found = read_boxes(text)
    assert len(read) == boxes
    assert found is None if problem is None else re.search(problem, found or "")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("ab" + span("x", "[[1, 2, 3, 4]]") + span("y", "?"), ["span 1 at offset 47: coordinates '\\?' cannot be"]),
        ("<|ref|>a " + span("x", "[[1, 2, 3, 4]]"), ["span 0 at offset 0: label .* holds a <|ref|>"]),
        ("<|ref|>a<|/ref|> <|ref|>", ["2 <|ref|> outside any span", "1 <|/ref|> outside any span"]),
        (span("<|ref|>" * 9000, "[[1, 2, 3, 4]]"), ["span 0 at offset 0: label .{,120}$"]),
        ("plain", []),
    ],
    ids=["coordinates", "open label", "marks", "a megabyte", "none"],
)
def test_what_the_vendor_drops_in_silence_is_a_problem(text: str, problems: list[str]) -> None:
    found = parse(text).problems
    assert len(found) == len(problems)
    for message, start in zip(found, problems, strict=True):
        assert re.match(start.replace("|", r"\|"), message), message


@pytest.mark.parametrize(
    ("text", "cleaned"), [(f" a {EOS}", "a"), (f"a{EOS}{EOS}", f"a{EOS}"), (f"a{EOS} ", f"a{EOS}"), ("\u3000a\n", "a")]
)
def test_one_end_token_goes_then_the_blanks(text: str, cleaned: str) -> None:
    assert clean_output(text) == cleaned


@pytest.mark.parametrize("repeated", ["<|ref|>", "<|ref|><|/ref|><|det|>", "<|/det|><|/ref|>", "\0"])
@pytest.mark.parametrize(("before", "after"), [("", ""), (OPEN, CLOSE)], ids=["outside", "as coordinates"])
def test_hostile_megabytes_are_read_in_linear_time(before: str, repeated: str, after: str) -> None:
    with _guard():
        parse(before + repeated * (4_000_000 // len(repeated)) + after)


def test_megabytes_of_equal_spans_take_one_replacement() -> None:
    """100,000 replacements in a text of this length would take a quarter of an hour."""
    with _guard():
        assert "<|" not in to_mmd(f"{TEXT}{IMAGE}" * 50_000 + "end")


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
