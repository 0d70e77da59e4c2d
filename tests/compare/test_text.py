"""Texts by their edit distance, the signs of one that went astray, and the first words that differ."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.compare.diff import CONTEXT, MOST_LINES, WIDTH, WINDOW, DiffSide, diff, plain_line
from pytest_dsocr.compare.text import (
    LONGEST_PERIOD,
    Circle,
    compare_content,
    compare_text,
    degenerations,
    longest_circle,
)
from pytest_dsocr.compare.verdict import Comparison, Symptom, Verdict
from tests.compare.made import PAGE_TEXT as PAGE
from tests.compare.made import shown

TENS = "0123456789" * 3
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LEADERS = "Contents " + "." * 60 + " 4\n" + PAGE
LONG_LINE = "".join(chr(0x4E00 + k) for k in range(LONGEST_PERIOD))
TABLE = PAGE + "<td></td>" * 12
ASTRAY = {
    "nothing": ("", PAGE),
    "first half": (PAGE[:100], PAGE),
    "but for its start": (PAGE[7:], PAGE),
    "nearly its end": ("it" + PAGE[60:], PAGE),
    "nearly its start": (PAGE[:70] + "it" + PAGE[72:150], PAGE),
    "but for a part": (PAGE[:60] + PAGE[100:], PAGE),
    "inside a span": ("<|ref|>text<|/ref|><|det|>[[88,", PAGE),
    "longer, inside a span": (PAGE + "<|ref|>text<|/ref|><|det|>[[88,", PAGE),
    "prompt in it": ("said <image>\nFree OCR. " + PAGE, PAGE),
    "prompt in front": ("Convert the document to markdown.\n" + PAGE, PAGE),
    "no markup": (PAGE.replace("<|", "").replace("|>", ""), PAGE),
    "byte marks": (PAGE.replace(" ", "Ġ").replace("\n", "Ċ"), PAGE),
    "broken characters": (PAGE.replace("meet ", "me\ufffd\ufffd "), PAGE),
    "spaces": (PAGE.replace("\n\n", "\n"), PAGE),
    "numbers": (PAGE.replace("510", "1024"), PAGE),
    "line": (PAGE + "CASHIER: 17,000\n" * 40, PAGE),
    "no space": ("D3" * 200, PAGE),
    "boxes that move": (PAGE + "".join(f"[[1, {k}, 9, {k + 7}]] text\n" for k in range(90, 120)), PAGE),
    "a long line": (PAGE + ("x" * LONGEST_PERIOD + "y\n") * 5, PAGE),
    "more leaders": (PAGE + "." * 300, LEADERS),
    "long and counting": ("".join(f"{k} {LONG_LINE}\n" for k in range(8, 12)), PAGE),
    "two ways": ("abc" + "\ufffd" * 30, "abcdef"),
    "goes on": ("abcdef and more", "abcdef"),
    "another from the start": ("xx" + "y" * 28, TENS),
    "another within a tenth": ("01" + LETTERS, TENS),
    "by more than half": ("y" * 16 + TENS[16:], TENS),
}
NOT_ASTRAY = {
    "both nothing": ("", ""),
    "a blank page": ("", " \n"),
    "both end inside": (PAGE + "<|ref|>text", PAGE + "<|ref|>image<|/ref|><|det|>[[1, 2"),
    "another span": ("A <|ref|>text<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>", PAGE),
    "both say the prompt": ("Free OCR. x", "Free OCR. y"),
    "marks on both": (PAGE + "Ġ.", PAGE + "Ġ"),
    "a word": (PAGE.replace("agreed", "refused"), PAGE),
    "three times": (PAGE + "Hello" * 3, PAGE),
    "a short rule": (PAGE + "-" * 20, PAGE),
    "longer leaders": (LEADERS.replace("." * 60, "." * 110), LEADERS),
    "a wider table": (TABLE + "<td></td>" * 10, TABLE),
    "twice what the page repeats": (PAGE + "once again " * 4, PAGE + "once again " * 2),
    "little": ("abcde" * 4, "xyz"),
    "no page": (PAGE, ""),
}


def test_a_text_that_went_astray(snapshot: SnapshotAssertion) -> None:
    assert {name: shown(compare_text(*pair, 0.0)) for name, pair in ASTRAY.items()} == snapshot
    for actual, expected in ASTRAY.values():
        assert compare_text(actual, expected, 0.0).signs


@pytest.mark.parametrize("pair", NOT_ASTRAY.values(), ids=NOT_ASTRAY)
def test_what_the_page_does_as_well_is_no_alarm(pair: tuple[str, str]) -> None:
    assert not [*degenerations(*pair)]


@pytest.mark.parametrize("actual", ["012" + LETTERS, "y" * 15 + TENS[15:], "z" + TENS[20:], " "])
def test_what_begins_as_the_page_or_is_part_of_it_is_a_reading_of_it(actual: str) -> None:
    assert Symptom.UNRELATED not in compare_text(actual, TENS, 0.0).signs


def test_a_text_that_is_shorter_and_mostly_another_lacks_no_part_of_the_page() -> None:
    missing = {Symptom.START_MISSING, Symptom.PART_MISSING, Symptom.END_MISSING}
    parts = (PAGE[:30] + "x" * 40, PAGE[:30] + PAGE[100:], PAGE[:60] + PAGE[-30:], "x" + PAGE[100:])
    found = [[*missing & compare_text(one, PAGE, 0.0).signs] for one in parts]
    assert found == [[], [Symptom.PART_MISSING], [Symptom.PART_MISSING], [Symptom.START_MISSING]]


def test_a_mark_of_several_words_that_is_nowhere_in_a_nearly_right_text_is_named() -> None:
    page, never = f"{PAGE}Date: 1\nTotal: 2\n", Symptom.NEVER_READ
    texts = page.replace(":", ""), page.replace("Date:", "Date"), page[:9] + page.replace(":", "")[60:]
    found = [compare_text(one, page, 0.0) for one in texts]
    assert [never in one.signs for one in found] == [True, False, False], "one may be chance, as in a wrong text"
    assert f"{never}: ':', in 2 words of the reference" in found[0].details


def test_more_than_twice_what_the_page_repeats_is_a_circle() -> None:
    found = degenerations(PAGE + "once again " * 5, PAGE + "once again " * 2)
    assert [one.sign for one in found] == [Symptom.REPETITION]


def test_a_repetition_quotes_numbers_only_if_they_repeat() -> None:
    for end, quotes in (("388, " * 20, "'388,'"), ("233, 437, " + "388, " * 20, "'#,'"), ("12 7\n" * 20, "'12 7'")):
        [found] = degenerations(PAGE + end, PAGE)
        assert quotes in found.how


@pytest.mark.parametrize(
    ("text", "times", "circle"),
    [
        ("xababa", 2, Circle(1, 5, 2, "ab")),
        ("xababa", 3, None),
        ("12 7 345 ", 3, Circle(0, 9, 3, "12 ")),
        ("aaaaxbcbc", 2, Circle(0, 4, 4, "a")),
        ("one\ntwo\none\ntwo\none\ntwo\n", 3, Circle(0, 24, 3, "one\ntwo\n")),
    ],
)
def test_the_longest_circle(text: str, times: int, circle: Circle | None) -> None:
    assert longest_circle(text, times) == circle


def test_no_text_at_all_is_wrong_under_any_limit() -> None:
    for nothing in ("", " \n"):
        assert compare_text(nothing, "abc", 5.0).verdict is Verdict.WRONG
        assert compare_text(nothing, "\n\n", 5.0).verdict is Verdict.DRIFT
        assert compare_content("result.mmd", nothing, "abc", 5.0).verdict is Verdict.DRIFT
    assert compare_text("abc", "", 1e9).verdict is Verdict.WRONG


def test_contents_are_measured_and_shown_where_they_differ(snapshot: SnapshotAssertion) -> None:
    pairs = (("xbc", "abc"), ("ab ", "ab"), ("a\n", ""))
    assert [shown(compare_content("result.mmd", *pair, 0.0)) for pair in pairs] == snapshot
    for text in ("", "the " * 99):
        assert compare_text(text, text, 0.0) == Comparison("text", Verdict.MATCH, f"{len(text)} characters")


PAIRS = {
    "equal": (PAGE, PAGE),
    "empty": ("", ""),
    "two words": (PAGE.replace("510", "1024").replace("agreed", "refused"), PAGE),
    "first and last": ("no two. So it ends", "one two. So it began"),
    "lost start": (PAGE[7:], PAGE),
    "nothing": ("", "all of it"),
    "surplus": ("all of it", ""),
    "space": ("one two", "one  two"),
    "unrelated": ("x" * 900, "y" * 800),
    "escapes": ("red \x1b[31m", "red \x9b31m"),
}


def test_words_that_differ_are_marked_with_a_little_around_them(snapshot: SnapshotAssertion) -> None:
    assert {name: [plain_line(line) for line in diff(*pair)] for name, pair in PAIRS.items()} == snapshot


def test_differences_far_from_the_first_and_beyond_a_few_lines_are_left_out() -> None:
    expected = "".join(f"{k} and so on for quite a while, as texts do, with nothing in it; " for k in range(99))
    assert len(diff(expected.replace("quite", "not"), expected)) == MOST_LINES
    far = expected[:WINDOW] + "x" + expected[WINDOW:-WINDOW] + "y" + expected[-WINDOW:]
    [only] = diff(far, expected)
    assert DiffSide.SUBJECT in {piece.side for piece in only}


def test_where_texts_are_cut_is_no_difference() -> None:
    expected = " ".join(map(str, range(9, 999)))
    [line] = diff("one more: " + expected, expected)
    assert {piece.side for piece in line} == {DiffSide.SUBJECT, DiffSide.BOTH}


@pytest.mark.parametrize(("longer", "is_cut"), [(0, False), (1, True)])
def test_a_text_that_ends_in_the_window_is_not_cut(longer: int, is_cut: bool) -> None:
    between = " ".join(["word"] * WINDOW)[: WINDOW - 4 + longer]
    [first, *others] = diff(f"a {between} b", f"c {between} d")
    assert plain_line(first).startswith("[-c-]{+a+} word ")
    assert bool(others) is not is_cut


TEXTS = st.text(st.sampled_from("ab 1\n<|>\x1b\udc80の"), max_size=3 * CONTEXT)


@given(TEXTS, TEXTS)
@example("a" * 19 + "b" * 400, "a" * 30)
def test_any_two_texts_have_lines_that_a_terminal_holds(actual: str, expected: str) -> None:
    lines = diff(actual, expected)
    assert bool(lines) is (actual != expected)
    assert len(lines) <= MOST_LINES
    for line in lines:
        assert plain_line(line).isprintable()
        assert len(plain_line(line)) <= WIDTH
        assert {piece.side for piece in line} & {DiffSide.REFERENCE, DiffSide.SUBJECT}
