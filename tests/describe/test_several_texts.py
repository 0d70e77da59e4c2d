"""Changes planted in several texts are found with their numbers, and one that a single text refutes is not named."""

from collections.abc import Callable

import pytest

from pytest_dsocr.describe.several_texts import TextPair, of_pages, of_told

TEXTS = ("# One\nTo the sea 46", "Two words.\n\nPage 9", "a <b> & c\nlast line\nPage 120 ", "Ä, Ö and 17")
CHANGES: dict[str, tuple[Callable[[str], str], str]] = {
    "end": (lambda text: text[:-2], "the last 2 characters are missing"),
    "one": (lambda text: text[:-1], "the last character is missing"),
    "start": (lambda text: text[3:], "the first 3 characters are missing"),
    "word": (lambda text: text.rstrip().rpartition(" ")[0], "the last word is missing"),
    "line": (lambda text: "\n".join(text.split("\n")[:-1]), "the last line is missing"),
    "each line": (lambda text: "\n".join(line[:-1] for line in text.split("\n")), "the last character of each line is"),
    "each start": (
        lambda text: "\n".join(line[2:] for line in text.split("\n")),
        "the first 2 characters of each line",
    ),
    "most": (lambda text: text[:9], "all after the first 9 characters are missing"),
    "front": (lambda text: "> " + text, "'> ' is in front"),
    "behind": (lambda text: text + "</s>", "'</s>' follows the end"),
}


@pytest.mark.parametrize(("change", "words"), CHANGES.values(), ids=CHANGES)
def test_a_change_of_all_texts_is_found(change: Callable[[str], str], words: str) -> None:
    pairs = [TextPair(change(text), text) for text in TEXTS]
    found = of_pages(pairs)
    assert found is not None
    assert found.text.startswith(words)
    assert found.text.endswith("on each of 4 pages that were read so far")
    told = of_told(pairs)
    assert told is not None
    assert told.text.startswith(f"in what `text_of` returns, {words}")
    spoilt = [*pairs[:-1], TextPair("another text", TEXTS[-1])]
    assert of_pages(spoilt) is None
    assert of_told(spoilt) is None
    assert of_pages([*pairs, TextPair(TEXTS[0], TEXTS[0])]) is None


def test_a_change_is_told_from_another_with_the_same_result_by_other_texts() -> None:
    pieces = (("Page", " 46"), ("Page", " 7"), ("Pa", "ge", " 120"))
    by_token = [TextPair("".join(one[:-1]), "".join(one), one) for one in pieces]
    by_character = [TextPair("".join(one)[:-3], "".join(one), one) for one in pieces]
    found = [of_told(pairs) for pairs in (by_token, by_character)]
    assert [one.text.partition(",")[2].partition(",")[0].strip() for one in found if one] == [
        "the last token is missing",
        "the last 3 characters are missing",
    ]


def test_one_wrong_text_shows_no_change_of_all() -> None:
    right = TextPair("right", "right")
    assert of_pages([TextPair("wron", "wrong"), right]) is None
    assert of_pages([TextPair("wron", "wrong")] * 3) is None


def test_white_space_at_the_ends_may_be_lost_besides() -> None:
    found = of_told([TextPair(text[:-2].strip(), text) for text in TEXTS])
    assert found is not None
    assert "the last 2 characters are missing, and then white space around the text" in found.text
