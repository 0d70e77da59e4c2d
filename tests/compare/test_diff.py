"""The first differences of two texts: which words, with how much around them, and never more than a few lines."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.compare.diff import CONTEXT, MOST_LINES, WIDTH, WINDOW, Side, diff, plain_line
from tests.compare.made import PAGE_TEXT as PAGE

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
    assert Side.SUBJECT in {piece.side for piece in only}


def test_where_texts_are_cut_is_no_difference() -> None:
    expected = " ".join(map(str, range(9, 999)))
    [line] = diff("one more: " + expected, expected)
    assert {piece.side for piece in line} == {Side.SUBJECT, Side.BOTH}


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
        assert {piece.side for piece in line} & {Side.REFERENCE, Side.SUBJECT}
