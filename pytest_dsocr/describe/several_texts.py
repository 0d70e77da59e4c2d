"""The one change that gives several texts: of all pages that a run has read, or of lists of tokens."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from pytest_dsocr.base.words import count, quoted
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.texts import CHANGES, WIDTH

MOST_CHARACTERS, MOST_PARTS = 64, 8
"""Largest number of characters, and of tokens, lines or words, that a cut is looked for."""
WORD = re.compile(r"\s*\S+")
LEAST = 2
"""Smallest number of wrong texts that show a change: one text fits a cut of any kind."""


class TextPair(NamedTuple):
    """A subject's text, and the expected one."""

    actual: str
    expected: str
    pieces: Sequence[str] = ()
    """Texts of the tokens that make the expected one; nothing if they are not known one by one."""


class Told(NamedTuple):
    """Tokens, and the text that a subject's ``text_of`` returned for them."""

    tokens: tuple[int, ...]
    text: str


TextChange = Callable[[TextPair], str]


def of_pages(pairs: Sequence[TextPair]) -> Description | None:
    """Return the change with a number, such as a cut, that gives the texts of all pages; None if none does."""
    wrong = sum(one.actual != one.expected for one in pairs)
    words = _holding(pairs, _with_a_number(pairs))
    where = f"on each of {len(pairs)} pages that were read so far"
    return Description("on-each-page", f"{words}, {where}", 1.0, wrong) if words else None


def of_told(pairs: Sequence[TextPair]) -> Description | None:
    """Return the change by which ``text_of`` gives all these texts; None if none does."""
    changes = ((words, partial(_changed, change)) for words, change in CHANGES.values())
    words = _holding(pairs, (one for of in (changes, _with_a_number(pairs)) for one in of))
    where = f"for each of {len(pairs)} lists of right tokens: the page's, and these cut short"
    return Description("told", f"in what `text_of` returns, {words}, {where}", 1.0, len(pairs)) if words else None


def _holding(pairs: Sequence[TextPair], changes: Iterator[tuple[str, TextChange]]) -> str:
    """Return the words of the first change that gives all texts; empty if none does.

    A change that needs white space around a text to be stripped as well comes after those that do not.
    """
    wrong = {(one.actual, one.expected) for one in pairs if one.actual != one.expected}
    if len(wrong) < LEAST:
        return ""
    stripped = ""
    for words, change in changes:
        made = [change(one) for one in pairs]
        if all(text == one.actual for text, one in zip(made, pairs, strict=True)):
            return words
        if not stripped and all(text.strip() == one.actual.strip() for text, one in zip(made, pairs, strict=True)):
            stripped = f"{words}, and then white space around the text"
    return stripped


def _changed(change: Callable[[str], str], pair: TextPair) -> str:
    return change(pair.expected)


def _with_a_number(pairs: Sequence[TextPair]) -> Iterator[tuple[str, TextChange]]:
    """Yield the changes with a number or a text that the first wrong pair allows, the simplest first."""
    first = next((one for one in pairs if one.actual != one.expected), None)
    if first is None:
        return
    for size in range(1, MOST_CHARACTERS + 1):
        yield f"the last {_of(size, 'character')} missing", partial(_part, slice(-size))
        yield f"the first {_of(size, 'character')} missing", partial(_part, slice(size, None))
    for size in range(1, MOST_PARTS + 1):
        if all(one.pieces for one in pairs):
            yield f"the last {_of(size, 'token')} missing", partial(_tokens, slice(-size))
            yield f"the first {_of(size, 'token')} missing", partial(_tokens, slice(size, None))
        yield f"the last {_of(size, 'word')} missing", partial(_words, slice(-size))
        yield f"the first {_of(size, 'word')} missing", partial(_words, slice(size, None))
        yield f"the last {_of(size, 'line')} missing", partial(_lines, slice(-size))
        yield f"the first {_of(size, 'line')} missing", partial(_lines, slice(size, None))
        each_last, each_first = rf"(?m).{{1,{size}}}$", rf"(?m)^.{{1,{size}}}"
        yield f"the last {_of(size, 'character', ' of each line')} missing", partial(_without, re.compile(each_last))
        yield f"the first {_of(size, 'character', ' of each line')} missing", partial(_without, re.compile(each_first))
    most = len(first.actual)
    if most < len(first.expected):
        yield f"all after the first {_of(most, 'character')} missing", partial(_part, slice(most))
    if first.expected and first.actual.endswith(first.expected):
        more = first.actual.removesuffix(first.expected)
        yield f"{quoted(more, WIDTH)} is in front", lambda one: more + one.expected
    if first.expected and first.actual.startswith(first.expected):
        end = first.actual.removeprefix(first.expected)
        yield f"{quoted(end, WIDTH)} follows the end", lambda one: one.expected + end


def _of(size: int, noun: str, more: str = "") -> str:
    """Return ``2 characters are`` and ``character is``, with ``more`` after the noun."""
    return f"{noun}{more} is" if size == 1 else f"{count(size, noun)}{more} are"


def _without(pattern: re.Pattern[str], pair: TextPair) -> str:
    return pattern.sub("", pair.expected)


def _part(which: slice, pair: TextPair) -> str:
    return pair.expected[which]


def _tokens(which: slice, pair: TextPair) -> str:
    return "".join(pair.pieces[which])


def _words(which: slice, pair: TextPair) -> str:
    return "".join(WORD.findall(pair.expected)[which])


def _lines(which: slice, pair: TextPair) -> str:
    return "\n".join(pair.expected.split("\n")[which])
