from __future__ import annotations

import re

import pytest

from pytest_dsocr.contract.markup import Box, PixelBox, find_spans, parse, quote, read_boxes, to_pixels
from pytest_dsocr.contract.mmd import clean_output
from tests.contract.recorded_outputs import CASES, PAGE_SIZE, RECORD, Recorded, each_recorded_output
from tests.vendor_live.outputs import OUTPUTS, span


def test_every_output_is_recorded_with_its_provenance() -> None:
    assert {name: case.text for name, case in CASES.items()} == OUTPUTS
    assert len(CASES) >= 30
    assert RECORD["provenance"]["vendor_sha256"]["modeling_deepseekocr.py"].startswith("5835e0b9e1942fe3")


@each_recorded_output
def test_spans_are_the_vendors(recorded: Recorded) -> None:
    output = clean_output(recorded.text)
    found = [
        [output[start:end], output[start + 7 : label_end], output[det_start : end - 8]]
        for start, label_end, det_start, end in find_spans(output)
    ]
    assert found == recorded.spans
    assert [(s.raw, s.label) for s in parse(output).spans] == [(raw, label) for raw, label, _ in recorded.spans]


@each_recorded_output
def test_boxes_are_those_the_vendor_draws(recorded: Recorded) -> None:
    markup = parse(clean_output(recorded.text))
    drawn = [list(to_pixels(box, *PAGE_SIZE)) for span in markup.spans for box in span.boxes]
    assert drawn == recorded.outlines


def test_a_span_knows_its_place_its_text_and_its_label() -> None:
    title, two_lines = span("title", "[[1, 2, 3, 4]]"), span("te\nxt", "[[5, 6, 7, 8]]")
    text = f" Before\n{title}\n# Head\n\n{two_lines}"
    markup = parse(text)
    first, second = markup.spans
    assert markup.preamble == "Before"
    assert (first.label, first.text, first.boxes) == ("title", "# Head", (Box(1, 2, 3, 4),))
    assert (second.label, second.text, second.boxes) == ("te\nxt", "", (Box(5, 6, 7, 8),))
    assert [text[s.start : s.end] for s in markup.spans] == [s.raw for s in markup.spans]
    assert markup.problems == ()


def test_no_text_is_lost() -> None:
    text = f"a{span('x', '[[1, 2, 3, 4]]')}b{span('y', 'broken')}c<|ref|>d"
    markup = parse(text)
    assert [markup.preamble, *(s.text for s in markup.spans)] == ["a", "b", "c<|ref|>d"]


@pytest.mark.parametrize(
    ("coordinates", "boxes", "problem"),
    [
        ("[[1, 2, 3, 4]]", 1, None),
        ("[[1, 2, 3, 4], (5.5, -6, 7, 8)]", 2, None),
        ("[1, 2, 3, 4]", 0, "box 0 .* is not four finite numbers"),
        ("[[1, 2, 3]]", 0, "box 0"),
        ("[[1, 2, 3, 4, 5]]", 0, "box 0"),
        ("[[1, 2, 3, 4], [5, 6], [7, 8, 9, 10]]", 1, "box 1"),
        ("[[1, 2, 3, 4], [5, 6, '7', 8]]", 1, "box 1"),
        ("[[1, 2, 3, 4], [5, 6, None, 8]]", 1, "box 1"),
        ("[[1, 2, 3, 1e400]]", 0, "box 0"),
        ("[[1, 2, 3, -1e400]]", 0, "box 0"),
        ("[[1, 2, 3, 1e300]]", 0, "box 0"),
        ("[[1, 2, 3, -1e300]]", 0, "box 0"),
        ("[[1, 2, 3, -9e299]]", 1, None),
        ("[[1, 2, 3, 0x" + "f" * 10_000 + "]]", 0, "box 0"),
        ("[['abcd', 2, 3, 4]]", 0, "box 0"),
        ("['abcd']", 0, "box 0"),
        ("[[1, 2, 3, 4]", 0, "cannot be read: .* is not closed"),
        ("[[nan, 2, 3, 4]]", 0, "cannot be read: 'n' is no part"),
        ("", 0, "cannot be read: nothing in it"),
        ("[]", 0, "no list of boxes"),
        ("7", 0, "no list of boxes"),
        ("'text'", 0, "no list of boxes"),
        ("{'a': 1}", 0, "no list of boxes"),
    ],
)
def test_a_bad_box_ends_its_span_and_is_reported(coordinates: str, boxes: int, problem: str | None) -> None:
    read, found = read_boxes(coordinates)
    assert len(read) == boxes
    assert found is None if problem is None else re.search(problem, found or "")


def test_coordinates_stay_as_the_model_wrote_them() -> None:
    (box,), _ = read_boxes("[[1, 2.5, 0x10, True]]")
    assert [type(value) for value in box] == [int, float, int, bool]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        (span("x", "[[1, 2, 3]]"), ["span 0 at offset 0: box 0"]),
        ("ab" + span("x", "[[1, 2, 3, 4]]") + span("y", "?"), ["span 1 at offset 47: coordinates '\\?' cannot be"]),
        ("<|ref|>a " + span("x", "[[1, 2, 3, 4]]"), ["span 0 at offset 0: label .* holds a <|ref|>"]),
        ("<|ref|>text", ["1 <|ref|> outside any span"]),
        ("<|ref|>a<|/ref|> <|ref|>", ["2 <|ref|> outside any span", "1 <|/ref|> outside any span"]),
        ("<|det|>[[1", ["1 <|det|> outside any span"]),
        (span("x", "[[1, 2, 3, 4]]") + "<|/det|>", ["1 <|/det|> outside any span"]),
        ("plain", []),
    ],
)
def test_what_the_vendor_drops_in_silence_is_a_problem(text: str, problems: list[str]) -> None:
    found = parse(text).problems
    assert len(found) == len(problems)
    for message, start in zip(found, problems, strict=True):
        assert re.match(start.replace("|", r"\|"), message), message


def test_forty_characters_are_quoted() -> None:
    assert quote("x" * 40) == repr("x" * 40)
    assert quote("x" * 41) == repr("x" * 40 + "...")


def test_a_message_does_not_repeat_megabytes() -> None:
    problems = parse(span("<|ref|>" * 100_000, "[[1, 2, 3, 4]]") + span("x", "[" * 100_000)).problems
    assert len(problems) == 2
    assert max(map(len, problems)) < 200


@pytest.mark.parametrize(
    ("box", "pixels"),
    [
        (Box(0, 0, 999, 999), (0, 0, 1240, 1754)),
        (Box(1, 1, 998, 998), (1, 1, 1238, 1752)),
        (Box(500, 500, 500.9, 501), (620, 877, 621, 879)),
        (Box(-1, -0.5, 1000, 1100), (-1, 0, 1241, 1931)),
        (Box(300, 300, 100, 100), (372, 526, 124, 175)),
    ],
)
def test_pixels_are_truncated_parts_of_999(box: Box, pixels: tuple[int, ...]) -> None:
    assert to_pixels(box, 1240, 1754) == PixelBox(*pixels)
