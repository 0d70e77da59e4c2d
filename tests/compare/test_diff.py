"""The first differences of two texts: which words, with how much around them, and never more than a few lines."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_dsocr.compare.diff import CONTEXT, MOST_LINES, WIDTH, WINDOW, Side, diff, plain_line

PAGE = (
    "<|ref|>title<|/ref|><|det|>[[88, 40, 510, 66]]<|/det|>\n# Minutes of the meeting\n\n"
    "<|ref|>text<|/ref|><|det|>[[88, 90, 910, 170]]<|/det|>\nThose present agreed to meet again in 14 days.\n"
)


@pytest.mark.parametrize(
    ("mine", "theirs", "lines"),
    [
        (PAGE, PAGE, []),
        ("", "", []),
        (
            PAGE.replace("510", "1024").replace("agreed", "refused"),
            PAGE,
            [
                r"...f|><|det|>[[88, 40, [-510-]{+1024+}, 66]]<|/det|>\n# Mi...",
                r"...et|>\nThose present [-agreed-]{+refused+} to meet again in 14 days.\n",
            ],
        ),
        ("no two. So it ends", "one two. So it began", ["[-one-]{+no+} two. So it [-began-]{+ends+}"]),
        (PAGE[7:], PAGE, ["[-<|ref|>-]title<|/ref|><|det|>..."]),
        ("", "all of it", ["[-all of it-]"]),
        ("all of it", "", ["{+all of it+}"]),
        ("one two", "one  two", ["one [- -]two"]),
        ("x" * 900, "y" * 800, ["[-" + "y" * 33 + "...-]{+" + "x" * 33 + "...+}"]),
        ("red \x1b[31m", "red \x9b31m", [r"red \x{+1b[+}[-9b31m-]{+31m+}"]),
    ],
    ids=[
        "equal",
        "empty",
        "two words",
        "first and last",
        "lost start",
        "nothing",
        "surplus",
        "space",
        "unrelated",
        "escapes",
    ],
)
def test_words_that_differ_are_marked_with_a_little_around_them(mine: str, theirs: str, lines: list[str]) -> None:
    assert [plain_line(line) for line in diff(mine, theirs)] == lines


def test_differences_far_from_the_first_and_beyond_a_few_lines_are_left_out() -> None:
    theirs = "".join(f"{k} and so on for quite a while, as texts do, with nothing in it; " for k in range(99))
    assert len(diff(theirs.replace("quite", "not"), theirs)) == MOST_LINES
    far = theirs[:WINDOW] + "x" + theirs[WINDOW:-WINDOW] + "y" + theirs[-WINDOW:]
    [only] = diff(far, theirs)
    assert Side.SUBJECT in {piece.side for piece in only}


def test_where_texts_are_cut_is_no_difference() -> None:
    theirs = " ".join(map(str, range(9, 999)))
    [line] = diff("one more: " + theirs, theirs)
    assert plain_line(line).startswith("{+one more: +}9 10 11 ")
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
def test_any_two_texts_have_lines_that_a_terminal_holds(mine: str, theirs: str) -> None:
    lines = diff(mine, theirs)
    assert bool(lines) is (mine != theirs)
    assert len(lines) <= MOST_LINES
    for line in lines:
        assert plain_line(line).isprintable()
        assert len(plain_line(line)) <= WIDTH
        assert {piece.side for piece in line} & {Side.REFERENCE, Side.SUBJECT}
