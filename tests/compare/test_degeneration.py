"""A text that went astray is told so, and one that repeats what the reference repeats is not."""

from __future__ import annotations

import pytest

from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.compare.text import LONGEST_PERIOD, Circle, degenerations, longest_circle

PAGE = (
    "<|ref|>title<|/ref|><|det|>[[88, 40, 510, 66]]<|/det|>\n# Minutes of the meeting\n\n"
    "<|ref|>text<|/ref|><|det|>[[88, 90, 910, 170]]<|/det|>\nThose present agreed to meet again in 14 days.\n"
)
LEADERS = "Contents " + "." * 60 + " 4\n" + PAGE
LONG_LINE = "".join(chr(0x4E00 + k) for k in range(LONGEST_PERIOD))
TABLE = PAGE + "<td></td>" * 12


@pytest.mark.parametrize(
    ("mine", "theirs", "told"),
    [
        ("", PAGE, ["emptiness: there is no text at all"]),
        (" \n\t", PAGE, ["emptiness: there is nothing but white space"]),
        ("", "", []),
        ("", " \n", []),
        (PAGE[:100], PAGE, [f"truncation: it breaks off after 100 of {len(PAGE)} characters, 55%"]),
        (PAGE[:-2], PAGE, [f"truncation: it breaks off after 181 of {len(PAGE)} characters, 99%"]),
        (PAGE[7:], PAGE, [f"lost start: it lacks the first 7 of {len(PAGE)} characters"]),
        (
            PAGE + "<|ref|>text<|/ref|><|det|>[[88,",
            PAGE,
            [f"truncation: it ends inside a span, after 214 characters; the reference has {len(PAGE)}"],
        ),
        (PAGE + "<|ref|>text", PAGE + "<|ref|>image<|/ref|><|det|>[[1, 2", []),
        ("A <|ref|>text<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>", PAGE, []),
        ("said <image>\nFree OCR. " + PAGE, PAGE, ["echo: it says the prompt 'Free OCR.' at character 13"]),
        (
            "Convert the document to markdown.\n" + PAGE,
            PAGE,
            ["echo: it says the prompt 'Convert the document to markdown.' at character 0"],
        ),
        ("Free OCR. x", "Free OCR. y", []),
        (PAGE.replace("<|", "").replace("|>", ""), PAGE, ["markup: there is no <|ref|> in it, the reference has 2"]),
        (PAGE.replace(" ", "Ġ"), PAGE, ["byte marks: it holds 'Ġ'"]),
        (PAGE.replace(" ", "Ġ").replace("\n", "Ċ"), PAGE, ["byte marks: it holds 'Ġ', 'Ċ'"]),
        (PAGE + "Ġ.", PAGE + "Ġ", []),
        (PAGE.replace("meet ", "me\ufffd\ufffd "), PAGE, ["broken characters: it holds '\ufffd'"]),
        (PAGE.replace("\n\n", "\n"), PAGE, ["spaces: nothing but white space differs"]),
        (PAGE.replace("510", "1024"), PAGE, ["numbers: nothing but numbers differs"]),
        (PAGE.replace("agreed", "refused"), PAGE, []),
        (PAGE, PAGE, []),
        ("ab\ud83d" * 9, "x", ["repetition: 'ab\\ud83d' comes 9 times in a row, from character 0 of 27 on"]),
    ],
)
def test_a_text_that_went_astray(mine: str, theirs: str, told: list[str]) -> None:
    assert [str(one) for one in degenerations(mine, theirs)] == told


@pytest.mark.parametrize(
    ("mine", "theirs", "what", "times", "start"),
    [
        (PAGE + "CASHIER: 17,000\n" * 40, PAGE, "CASHIER: 17,000", 40, len(PAGE) - 1),
        ("D3" * 200, PAGE, "D3", 200, 0),
        (PAGE + "Hello" * 10, PAGE, "Hello", 10, len(PAGE)),
        (PAGE + "".join(f"{k}. the same again\n" for k in range(30)), PAGE, "0. the same again", 30, len(PAGE) - 1),
        (PAGE + "".join(f"[[1, {k}, 9, {k + 7}]] text\n" for k in range(90, 120)), PAGE, None, 30, len(PAGE) - 1),
        (PAGE + ("x" * LONGEST_PERIOD + "y\n") * 5, PAGE, "x" * 37 + "...", 5, len(PAGE)),
        (PAGE + "." * 300, LEADERS, "." * 1, 300, len(PAGE)),
        ("".join(f"{k} {LONG_LINE}\n" for k in range(8, 12)), PAGE, "8 " + LONG_LINE[:35] + "...", 4, 0),
        ("abcdef" * 4, "xyz", "abcdef", 4, 0),
        ("の" * 99, "の" * 9, "の", 99, 0),
    ],
    ids=[
        "line",
        "no space",
        "word",
        "counting",
        "boxes that move",
        "a long line",
        "more leaders",
        "long and counting",
        "short",
        "wide",
    ],
)
def test_a_circle_is_told_by_what_comes_again_how_often_and_from_where(
    mine: str, theirs: str, what: str | None, times: int, start: int
) -> None:
    [told] = [str(one) for one in degenerations(mine, theirs) if one.sign is Sign.REPETITION]
    assert what is None or told.startswith(f"repetition: {what!r} comes ")
    assert f" comes {times} times in a row, from character {start} of {len(mine)} on" in told


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (PAGE + "Hello" * 3, PAGE),
        (PAGE + "-" * 20, PAGE),
        (LEADERS, LEADERS + "."),
        (LEADERS.replace("." * 60, "." * 110), LEADERS),
        (TABLE + "<td></td>" * 10, TABLE),
        ("the " * 400, "the " * 300),
        (PAGE, ""),
        ("abcdefghij" * 3, "xyz"),
        ("abcde" * 4, "xyz"),
    ],
    ids=[
        "three times",
        "a short rule",
        "the same leaders",
        "longer leaders",
        "a wider table",
        "both turn",
        "no page",
        "three",
        "little",
    ],
)
def test_a_page_that_repeats_itself_is_no_alarm(mine: str, theirs: str) -> None:
    assert not [one for one in degenerations(mine, theirs) if one.sign is Sign.REPETITION]


@pytest.mark.parametrize(("times", "alarm"), [(4, False), (5, True)])
def test_twice_what_the_page_repeats_is_no_alarm(times: int, alarm: bool) -> None:
    found = degenerations(PAGE + "once again " * times, PAGE + "once again " * 2)
    assert [one.sign for one in found] == [Sign.REPETITION] * alarm


@pytest.mark.parametrize(
    ("text", "times", "circle"),
    [
        ("", 2, None),
        ("a", 2, None),
        ("abcdef", 2, None),
        ("xabab", 2, Circle(1, 4, 2, "ab")),
        ("xababa", 2, Circle(1, 5, 2, "ab")),
        ("xababa", 3, None),
        ("xababab", 3, Circle(1, 6, 3, "ab")),
        ("12 7 345 ", 3, Circle(0, 9, 3, "12 ")),
        ("7a5b7a9b", 2, Circle(0, 8, 2, "7a5b")),
        ("aaaaxbcbc", 2, Circle(0, 4, 4, "a")),
        ("one\ntwo\none\ntwo\none\ntwo\n", 3, Circle(0, 24, 3, "one\ntwo\n")),
    ],
)
def test_the_longest_circle(text: str, times: int, circle: Circle | None) -> None:
    assert longest_circle(text, times) == circle
