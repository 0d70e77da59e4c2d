"""Compare texts by their edit distance, and find the signs of a degenerate one."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from rapidfuzz import fuzz
from rapidfuzz.distance import Levenshtein, Postfix, Prefix

from pytest_dsocr.base.words import listed, shown
from pytest_dsocr.compare.diff import diff
from pytest_dsocr.compare.systematic import habits
from pytest_dsocr.compare.verdict import Comparison, Symptom, Verdict
from pytest_dsocr.contract.markup import DET_END, REF
from pytest_dsocr.models import MODELS

LONGEST_PERIOD = 256
"""Characters, or lines."""
TIMES = 4
CHARACTERS = 24
"""Least number of repetitions in a row, and of characters that they cover; rows of dots do not count."""

NUMBER = re.compile("[0-9]+")
_BYTE_MARKS = {Symptom.BYTE_MARKS: ("\u0120", "\u010a"), Symptom.BROKEN_CHARACTERS: ("\ufffd",)}
_PROMPTS = (text for family in MODELS.values() for text in family.prompts.values())
_ECHOES = tuple(dict.fromkeys(text.rpartition("\n")[2].rpartition(">")[2] for text in _PROMPTS))


class TextDefect(NamedTuple):
    """Way in which a text is degenerate."""

    sign: Symptom
    how: str

    def __str__(self) -> str:
        return f"{self.sign}: {self.how}"


@dataclass(frozen=True)
class Circle:
    """A part of a text that is repeated several times in a row."""

    start: int
    """Offset of its first character."""
    characters: int
    """From there to the end of the last whole or broken-off repetition."""
    times: int
    once: str
    """The first repetition; in later ones the numbers may differ."""


def degenerations(actual: str, expected: str) -> Iterator[TextDefect]:
    """Yield each way in which ``actual`` is degenerate and ``expected`` is not."""
    if not actual.strip():
        if expected.strip():
            how = "there is nothing but white space" if actual else "there is no text at all"
            yield TextDefect(Symptom.EMPTINESS, how)
        return
    yield from _cut(actual, expected)
    yield from _circling(actual, expected)
    yield from _leaking(actual, expected)
    for prompt in _ECHOES:
        if prompt in actual and prompt not in expected:
            yield TextDefect(Symptom.ECHO, f"it says the prompt {prompt!r} at character {actual.index(prompt)}")


def _leaking(actual: str, expected: str) -> Iterator[TextDefect]:
    """Yield the signs of tokens that were badly decoded into text."""
    if REF in expected and REF not in actual:
        yield TextDefect(Symptom.MARKUP, f"there is no {REF} in it, the reference has {expected.count(REF)}")
    for sign, marks in _BYTE_MARKS.items():
        if any(mark in actual and mark not in expected for mark in marks):
            yield TextDefect(sign, f"it holds {', '.join(repr(mark) for mark in marks if mark in actual)}")
    if actual != expected and "".join(actual.split()) == "".join(expected.split()):
        yield TextDefect(Symptom.SPACES, "nothing but white space differs")
    elif actual != expected and NUMBER.sub("0", actual) == NUMBER.sub("0", expected):
        yield TextDefect(Symptom.NUMBERS, "nothing but numbers differs")


def _cut(actual: str, expected: str) -> Iterator[TextDefect]:
    share = f"{len(actual)} of {len(expected)} characters"
    if len(actual) < len(expected) and expected.startswith(actual):
        yield TextDefect(Symptom.TRUNCATION, f"it breaks off after {share}, {len(actual) / len(expected):.0%}")
    elif len(actual) < len(expected) and expected.endswith(actual):
        yield TextDefect(
            Symptom.LOST_START, f"it lacks the first {len(expected) - len(actual)} of {len(expected)} characters"
        )
    elif _in_span(actual) and not _in_span(expected):
        how = f"it ends inside a span, after {len(actual)} characters; the reference has {len(expected)}"
        yield TextDefect(Symptom.TRUNCATION if len(actual) < len(expected) else Symptom.ENDS_INSIDE, how)


def _lacking(actual: str, expected: str) -> Iterator[TextDefect]:
    """Yield which part is missing of a text that is nearly a part of ``expected``."""
    of, lost = len(expected), len(expected) - len(actual)
    found = fuzz.partial_ratio_alignment(actual, expected, score_cutoff=100 * (1 - NEARLY))
    left_out = [one for one in Levenshtein.opcodes(expected, actual) if one.tag == "delete"]
    largest = max((one.src_end - one.src_start for one in left_out), default=0)
    few = UNRELATED_FROM * of
    is_start = found is not None and found.dest_end == of and Prefix.similarity(actual, expected) < few
    is_end = found is not None and not found.dest_start and Postfix.similarity(actual, expected) < few
    if is_start or is_end or 2 * largest >= lost:
        sign = Symptom.START_MISSING if is_start else Symptom.END_MISSING if is_end else Symptom.PART_MISSING
        yield TextDefect(sign, f"about {lost} of {of} characters; the rest is nearly right")


def _never_read(actual: str, expected: str) -> Iterator[TextDefect]:
    """Yield the marks in several words of ``expected`` that are nowhere in ``actual``, as if a token were forbidden."""
    words = Counter(mark for word in expected.split() for mark in {*word} if not mark.isalnum())
    lost = [f"{mark!r}, in {times} words" for mark, times in words.items() if times > 1 and mark not in actual]
    if lost:
        yield TextDefect(Symptom.NEVER_READ, f"{listed(lost, 3)} of the reference")


def _in_span(text: str) -> bool:
    return text.rfind(REF) > text.rfind(DET_END)


def _circling(actual: str, expected: str) -> Iterator[TextDefect]:
    circle = longest_circle(actual, TIMES)
    if circle is None or circle.characters < CHARACTERS:
        return
    known = longest_circle(expected, 2)
    if known is None or circle.characters > 2 * known.characters:
        whole = actual[circle.start : circle.start + circle.characters]
        is_equal = ((circle.times + 1) * circle.once).startswith(whole)
        once = circle.once if is_equal else NUMBER.sub("#", circle.once)
        numbers = "" if is_equal else ", where # is any number"
        where = f"from character {circle.start} of {len(actual)} on"
        how = f"{shown(once.strip() or once, 40)!r} comes {circle.times} times in a row{numbers}, {where}"
        yield TextDefect(Symptom.REPETITION, how)


def longest_circle(text: str, times: int) -> Circle | None:
    """Return the longest stretch of ``text`` that repeats itself at least ``times`` in a row.

    All numbers count as equal, because a rule against repeated n-grams makes a looping model count upwards.
    """
    found = [circle for circle in (_by_character(text, times), _by_line(text, times)) if circle]
    return max(found, key=lambda circle: circle.characters, default=None)


def _by_character(text: str, times: int) -> Circle | None:
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    digit = (codes >= ord("0")) & (codes <= ord("9"))
    after_digit = np.concatenate([[False], digit])[:-1]
    [starts] = np.nonzero(~(digit & after_digit))
    return _longest(text, np.where(digit, ord("0"), codes)[starts], starts, times)


def _by_line(text: str, times: int) -> Circle | None:
    lines = text.splitlines(keepends=True)
    numbers: dict[str, int] = {}
    items = [numbers.setdefault(NUMBER.sub("0", line), len(numbers)) for line in lines]
    return _longest(text, np.array(items), np.cumsum([0, *map(len, lines)])[:-1], times)


def _longest(text: str, items: npt.NDArray[Any], starts: npt.NDArray[np.int64], times: int) -> Circle | None:
    ends = [*starts[1:].tolist(), len(text)]
    longest = None
    for period in range(1, min(LONGEST_PERIOD, len(items) // times) + 1):
        if not _may_circle(items, period, times):
            continue
        first, count = _longest_run(items[period:] == items[:-period])
        start, end = int(starts[first]), ends[first + count + period - 1]
        if count >= (times - 1) * period and (longest is None or end - start > longest.characters):
            once = text[start : int(starts[first + period])]
            longest = Circle(start, end - start, 1 + count // period, once)
    return longest


def _may_circle(items: npt.NDArray[Any], period: int, times: int) -> bool:
    """Check only every ``period``-th item: this is fast, and finds every repetition of that many times."""
    same = items[period::period] == items[:-period:period]
    runs = same[times - 2 :]
    for k in range(times - 2):
        runs = runs & same[k : k - times + 2]
    return bool(runs.any())


def _longest_run(same: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Return the start of the longest run of ``True``, and its length."""
    [breaks] = np.nonzero(np.concatenate([[True], ~same, [True]]))
    lengths = np.diff(breaks) - 1
    at = int(lengths.argmax())
    return int(breaks[at]), int(lengths[at])


UNRELATED_FROM, UNRELATED_SHARE, FOREIGN_SHARE = 0.1, 0.5, 0.2
"""A text is not of this page if it differs within the first tenth, and in more than half of its characters.

It is of this page if the shorter text is part of the longer one but for a fifth. Of the pairs of shipped pages 99 %
differ in more.
"""
NEARLY = 0.1
"""Largest foreign share of a text that only lacks a part of the page."""
CUT, ENDS = (Symptom.TRUNCATION, Symptom.LOST_START), (Symptom.TRUNCATION, Symptom.ENDS_INSIDE, Symptom.END_MISSING)


@dataclass(frozen=True)
class _Apart:
    """Distance between two texts."""

    at: int
    """Index of the first character that differs."""
    edits: int
    share: float
    """Edits as a share of the reference's length."""
    foreign: float
    """Edits besides those that the difference of the lengths needs, as a share of the shorter text."""

    @classmethod
    def of(cls, actual: str, expected: str) -> _Apart:
        at = Prefix.similarity(actual, expected)
        edits, shorter = Levenshtein.distance(actual, expected), min(len(actual), len(expected))
        foreign = (edits - abs(len(actual) - len(expected))) / max(shorter, 1)
        return cls(at, edits, edits / len(expected) if expected else math.inf, foreign)


def compare_text(actual: str, expected: str, allowed: float, *, is_stopped: bool = False) -> Comparison:
    """Compare two outputs of a model, markup included, with the signs of a degenerate one.

    The verdict is DRIFT if the edit distance over the reference's length is at most ``allowed``, and a text exists.
    A text that was stopped at the limit of its tokens (``is_stopped``) is not reported as cut.
    """
    if actual == expected:
        return _equal("text", expected)
    apart = _Apart.of(actual, expected)
    found = [*degenerations(actual, expected)]
    lacks = actual.strip() and len(actual) <= len(expected) - CHARACTERS and apart.foreign <= NEARLY
    if lacks and not any(one.sign in CUT for one in found):
        found += _lacking(actual, expected)
    if apart.share <= NEARLY:
        found += _never_read(actual, expected)
    astray = [one for one in found if not (is_stopped and one.sign in ENDS)]
    is_early = apart.at < UNRELATED_FROM * len(expected)
    if actual.strip() and is_early and apart.share > UNRELATED_SHARE and apart.foreign > FOREIGN_SHARE:
        astray.append(TextDefect(Symptom.UNRELATED, f"it reads something else from character {apart.at} on"))
    if expected and actual.startswith(expected):
        more = len(actual) - len(expected)
        astray.append(TextDefect(Symptom.GOES_ON, f"it continues after the reference's end, for {more} characters"))
    if each_time := habits(actual, expected):
        astray.append(TextDefect(Symptom.HABIT, each_time))
    empty = bool(expected.strip()) and not actual.strip()
    verdict = Verdict.DRIFT if apart.share <= allowed and not empty else Verdict.WRONG
    measured = "; ".join([*(one.sign for one in astray), _measured(actual, expected, apart, allowed)])
    signs = frozenset(one.sign for one in astray)
    shown = tuple(map(str, astray)), signs
    return Comparison("text", verdict, measured, None, *shown, diff=diff(actual, expected), share=apart.share)


def compare_content(what: str, actual: str, expected: str, allowed: float) -> Comparison:
    """Compare two texts by their edit distance over the reference's length alone."""
    if actual == expected:
        return _equal(what, expected)
    apart = _Apart.of(actual, expected)
    verdict = Verdict.DRIFT if apart.share <= allowed else Verdict.WRONG
    return Comparison(what, verdict, _measured(actual, expected, apart, allowed), diff=diff(actual, expected))


def _equal(what: str, expected: str) -> Comparison:
    return Comparison(what, Verdict.MATCH, f"{len(expected)} characters")


def _measured(actual: str, expected: str, apart: _Apart, allowed: float) -> str:
    where = f"from character {apart.at} of {len(expected)} on"
    length = f"; the subject has {len(actual)}" if len(actual) != len(expected) else ""
    return f"edit distance {apart.edits}, {apart.share:.2%} (allowed {allowed:.2%}), {where}{length}"
