"""Relations between texts, and between the boxes in them."""

import random
import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, strategies

from pytest_dsocr.contract.presets import Preset, get_preset
from pytest_dsocr.describe.boxes import of_boxes, units_of
from pytest_dsocr.describe.simplest import simplest
from pytest_dsocr.describe.state import PageSeen, ReadingSeen, of_ends, of_other_page, of_readings
from pytest_dsocr.describe.texts import CHANGES, is_partial, of_texts
from pytest_dsocr.describe.undone import undone
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR

LINES = [f"Line {k}: <b>R&D</b> costs 1{k}% of “{k * 37 % 91}”, see C:\\x{k}" for k in range(12)]
TEXT = "\n".join(LINES)
SAID: dict[str, tuple[str, str, str]] = {
    "cut": (TEXT[:102], "ends", f"it ends after 102 of {len(TEXT)} characters"),
    "cut in a word": (TEXT[: TEXT.index("costs") + 3], "ends", "in the middle of 'costs'"),
    "empty": ("", "empty", "nothing is read"),
    "goes on": (TEXT + "\nThe end.", "goes-on", "for 9 characters"),
    "late": (TEXT[10:], "begins-late", f"the first 10 of {len(TEXT)}"),
    "all digits are 7": (re.sub("[0-9]", "7", TEXT), "as-one", "digits are '7'"),
    "no line break": (TEXT.replace("\n", ""), "no-line-breaks", "every line break is missing, at 11 places"),
    "escaped": (TEXT.replace("<", "&lt;"), "edited", "'&lt;' in place of '<' at 24 of 24 places"),
    "html": (TEXT.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"), "escaped-html", "as in HTML"),
    "one word": (TEXT.replace("Line 7", "Row 7"), "edited", "at character"),
    "backslash n": (TEXT.replace("\n", "\\n"), "line-breaks-escaped", "every line break is a backslash and an n"),
    "lines": ("\n".join(sorted(LINES, reverse=True)), "reordered", "the same lines in another order"),
    "rotated": (TEXT[50:] + TEXT[:50], "moved", "50 characters from 0 on moved to"),
    "circle": (TEXT[:200] + "ab cd " * 40, "repeats", "40 times"),
    "long end": (TEXT[:-9] + "q" * 9_000, "repeats", "'q' 9000 times"),
    "two letters": (TEXT.replace("costs", "csots", 1), "moved", "1 character from"),
    "noise": (TEXT[:99] + "".join(random.Random(1).choices("abcdefgh", k=300)), "anatomy", "the first 99 of"),
}


@pytest.mark.parametrize(("actual", "kind", "words"), SAID.values(), ids=SAID)
def test_a_text_is_described_by_the_simplest_relation(actual: str, kind: str, words: str) -> None:
    found = simplest(of_texts(actual, TEXT))
    assert found is not None
    assert (found.kind, found.explains) == (kind, kind != "anatomy"), found
    assert words in found.text


@pytest.mark.parametrize("kind", CHANGES)
def test_each_change_of_a_whole_text_is_told_or_a_simpler_one_is(kind: str) -> None:
    text = (
        f'  A  b\\c\n\n<|ref|>t<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>![](images/0.jpg) é ﬁ &lt;q&gt; <"R&D">  \n{TEXT}\n'
    )
    actual = CHANGES[kind][1](text)
    found = simplest(of_texts(actual, text))
    assert found is not None
    assert found.explains, found
    if found.kind in CHANGES:
        assert CHANGES[found.kind][1](text) == actual or found.share < 1


BOXES = [("text", (k * 40.0 + 11, k * 60.0 + 20, k * 50.0 + 120, k * 61.0 + 90)) for k in range(9)]
Labelled = Sequence[tuple[str, Sequence[float]]]


def _changed(*formulas: str) -> Labelled:
    names = ("x1", "y1", "x2", "y2")
    return [(label, [eval(one, dict(zip(names, box, strict=True))) for one in formulas]) for label, box in BOXES]


BOXES_SAID: dict[str, tuple[Labelled, str, str]] = {
    "moved": (_changed("x1 + 3", "y1 - 2", "x2 + 3", "y2 - 2"), "boxes-moved", "moved by (+3, -2) of 999"),
    "exchanged": (_changed("y1", "x1", "y2", "x2"), "axes-exchanged", "9 boxes: x and y exchanged"),
    "sizes": (_changed("x1", "y1", "x2 - x1", "y2 - y1"), "as-sizes", "width and height"),
    "mirrored": (_changed("999 - x2", "y1", "999 - x1", "y2"), "mirrored-across", "left to right"),
    "scaled": (
        _changed("int(x1 * 1.5)", "int(y1 * .8)", "int(x2 * 1.5)", "int(y2 * .8)"),
        "scaled",
        "x times 1.5, y times 0.",
    ),
    "clamped": (_changed(*(f"min({one}, 300)" for one in ("x1", "y1", "x2", "y2"))), "clamped", "to 300"),
    "missing": (BOXES[:-2], "missing", "2 'text' of 9 missing, the others right"),
    "one wrong": ([*BOXES[:-1], ("text", (1, 2, 3, 4))], "anatomy", "8 of the reference's 9 boxes are right"),
}


@pytest.mark.parametrize(("actual", "kind", "words"), BOXES_SAID.values(), ids=BOXES_SAID)
def test_boxes_are_described_by_the_simplest_relation(actual: Labelled, kind: str, words: str) -> None:
    found = simplest(of_boxes(actual, BOXES))
    assert found is not None
    assert (found.kind, found.explains) == (kind, kind != "anatomy"), found
    assert words in found.text


GUNDAM, TINY = (get_preset(name, DEEPSEEK_OCR.presets) for name in ("gundam", "tiny"))
IN_UNITS: dict[str, tuple[Labelled, tuple[int, int], Preset, str]] = {
    "page": (
        _changed("int(x1 / 999 * 1140)", "int(y1 / 999 * 1101)", "int(x2 / 999 * 1140)", "int(y2 / 999 * 1101)"),
        (1140, 1101),
        GUNDAM,
        "9 boxes: in pixels of the page, 1140 x 1101 (x times 1.14, y times 1.1), "
        "truncated, not rounded: 14 of 36 edges tell",
    ),
    "neither": (
        _changed(*(f"round({one} / 999 * 512{' + 256' * (one[0] == 'x')})" for one in ("x1", "y1", "x2", "y2"))),
        (2000, 2000),
        GUNDAM,
        "",
    ),
    "view": (
        _changed(*(f"round({one} / 999 * 512)" for one in ("x1", "y1", "x2", "y2"))),
        (700, 900),
        TINY,
        "9 boxes: in pixels of the view, 512 x 512 (x times 0.513, y times 0.513), "
        "rounded, not truncated: 18 of 36 edges tell",
    ),
    "view with bars": (
        _changed(
            *(f"round({one} / 999 * {' 512 + 256' if one[0] == 'x' else 1024})" for one in ("x1", "y1", "x2", "y2"))
        ),
        (900, 1800),
        GUNDAM,
        "9 boxes: in pixels of the view with the page's bars, 1024 x 1024 (x times 0.513 +256, y times 1.03), "
        "rounded, not truncated: 19 of 36 edges tell",
    ),
    "page or view": (
        _changed(*(f"int({one} / 999 * 1280)" for one in ("x1", "y1", "x2", "y2"))),
        (1280, 1280),
        replace(GUNDAM, base_size=1280),
        "9 boxes: in pixels of the page, 1280 x 1280 (x times 1.28, y times 1.28) or in pixels of the view, ",
    ),
}


@pytest.mark.parametrize(("actual", "size", "preset", "words"), IN_UNITS.values(), ids=IN_UNITS)
def test_boxes_in_pixels_of_the_page_or_of_its_view_are_recognised(
    actual: Labelled, size: tuple[int, int], preset: Preset, words: str
) -> None:
    found = simplest(of_boxes(actual, BOXES, units_of(size, preset)))
    assert found is not None
    assert found.explains
    assert found.text.startswith(words)
    assert (found.kind == "in-pixels") is bool(words)


PAGES = {"a": PageSeen("one", 700), "b": PageSeen("two", 700), "c": PageSeen("three", 900)}
READINGS: dict[str, tuple[Sequence[tuple[str, bool]], str]] = {
    "second": (
        [("", False), ("a", True), ("a", True), ("c", True)],
        "as the second reading of the same page and later",
    ),
    "itself": ([("", False), ("a", True), ("b", False), ("a", True)], "directly after the same page"),
    "another": ([("a", False), ("b", True), ("c", True), ("a", False)], "directly after another page"),
    "as many": ([("a", False), ("c", False), ("b", True), ("a", False)], "after a page with as many tokens, 700"),
    "all": ([("a", True), ("b", True)], ""),
}


@pytest.mark.parametrize(("made", "words"), READINGS.values(), ids=READINGS)
def test_failing_readings_are_described_by_what_only_they_have(made: Sequence[tuple[str, bool]], words: str) -> None:
    readings = [ReadingSeen(after, k, fails) for k, (after, fails) in enumerate(made, 3)]
    found = simplest(of_readings(readings, "a", PAGES))
    assert (found.text if found else "").startswith(f"wrong {words}" if words else "")
    assert bool(found) is bool(words)


def test_a_text_of_another_page_is_recognised() -> None:
    [found] = of_other_page("two", "a", PAGES)
    assert found.text == "the text is that of b, a page with as many tokens"
    assert not [*of_other_page("one", "a", PAGES)]


TAGGED = "<b>28</b> & <i>7</i>, then 1 < 2 & 3, and <u>more</u> of <b>that</b> & all of it"


@pytest.mark.parametrize("kind", ["escaped-html", "no-blanks", "upper", "line-breaks-doubled"])
def test_a_change_that_leaves_a_part_of_the_difference_says_which_and_is_undone(kind: str) -> None:
    _, change = CHANGES[kind]
    expected = f"{TAGGED}\n{TAGGED}\\\n" * 6
    second = expected.replace("28", "27", 1)
    found = simplest(of_texts(change(second), expected))
    assert found is not None
    assert (found.kind, is_partial(found)) == (kind, True)
    assert "'7' in place of '8' at character" in found.text
    restored = undone(change(second), expected, change)
    assert restored is None or (change(restored), restored.count("27")) == (change(second), 1)
    assert restored is not None or kind == "upper", "letters are lost"
    whole = simplest(of_texts(change(expected), expected))
    assert whole is not None
    assert (whole.kind, is_partial(whole), whole.share) == (kind, False, 1.0)


def test_a_page_that_is_nearly_read_as_an_earlier_right_page_shows_state() -> None:
    first, own = ("".join(chr(97 + k * step % 26) for k in range(60)) for step in (3, 7))
    pages = {"a": PageSeen(first, 700, first), "b": PageSeen(own, 800)}
    [found] = of_other_page(first.replace("m", "."), "b", pages)
    assert (found.kind, found.explains) == ("other-page", True)
    assert found.text.startswith("the page is read as a was, which was read before and is right: 5% of its characters")
    for actual, before in (
        (own, pages),
        (own[:40] + first[40:], pages),
        (first[:20], pages),
        (first, {**pages, "a": PageSeen(first + "?", 700, first)}),
        (first[:-1], {"a": pages["a"], "b": PageSeen(first, 800)}),
    ):
        assert not [*of_other_page(actual, "b", before)]


ANY_TEXT = strategies.text(alphabet="ab\n 07<&é\\\ud800", max_size=30)
ANY_BOX = strategies.tuples(strategies.sampled_from("ab"), strategies.tuples(*[strategies.floats()] * 4))


@given(actual=ANY_TEXT, expected=ANY_TEXT)
def test_any_two_texts_are_described_without_an_error(actual: str, expected: str) -> None:
    found = simplest(of_texts(actual, expected))
    assert (found is None) is (actual == expected)
    assert not found or (0 <= found.share <= 1 and found.text)


@given(actual=strategies.lists(ANY_BOX, max_size=4), expected=strategies.lists(ANY_BOX, max_size=4))
def test_any_boxes_are_described_without_an_error(actual: Labelled, expected: Labelled) -> None:
    found = simplest(of_boxes(actual, expected))
    assert found is not None
    assert 0 <= found.share <= 1


def test_rows_of_a_batch_that_end_with_another_row_are_named() -> None:
    found = of_ends({2: 15, 3: 15}, {1: 15, 4: 15})
    assert found is not None
    assert "rows 2 and 3 end at step 15, where rows 1 and 4 ended, and are right up to there" in found.text
    assert of_ends({2: 15, 3: 16}, {1: 15}) is None
    assert of_ends({2: 15}, {1: 15, 3: 12}) is None, "row 3 ended before"
    assert of_ends({}, {1: 15}) is None
