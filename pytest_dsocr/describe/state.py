"""Relations between what a subject reads and what it read before."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from pytest_dsocr.base.words import count, joined, ordinal
from pytest_dsocr.describe.description import AS_BEFORE, AS_OTHER_PAGE, Description

MOST_PERIOD = 4
"""Longest period of failing readings that is tried."""
LEAST_TEXT, MOST_APART, NEARER = 24, 0.3, 0.5
"""Least characters of a text that tells pages apart; largest distance from another page's text, and the same as a share
of the distance from its own page's. Of 190 pairs of texts of ``dev-20`` the nearest two have 0.3 and 0.38."""


class PageSeen(NamedTuple):
    """A page that the run has read, as the reference reads it."""

    text: str
    tokens: int
    """Number of the prompt's tokens."""
    own: str | None = None
    """Text that the subject reads; None if that is not known."""


class ReadingSeen(NamedTuple):
    """A reading of a page."""

    after: str
    """Page that the process read before; empty for none."""
    place: int
    """Number of the reading in its process, counted from 1."""
    fails: bool


def of_readings(readings: Sequence[ReadingSeen], own: str, pages: Mapping[str, PageSeen]) -> Iterator[Description]:
    """Yield what all failing readings of a page have in common and no other reading has."""
    failing = [one.fails for one in readings]
    if all(failing) or not any(failing):
        return
    for words, holds in _relations(readings, own, pages):
        if [holds(one) for one in readings] == failing:
            text = f"wrong {words}: {sum(failing)} of {count(len(readings), 'reading')}, and right otherwise"
            yield Description(AS_BEFORE, text, 1.0, len(readings))


Relation = tuple[str, Callable[[ReadingSeen], bool]]


def _relations(readings: Sequence[ReadingSeen], own: str, pages: Mapping[str, PageSeen]) -> Iterator[Relation]:
    first = readings[0].place
    yield "as the second reading of the same page and later", lambda one: one.place > first
    yield "directly after the same page", lambda one: one.after == own
    yield "directly after another page", lambda one: one.after not in ("", own)
    if own in pages:
        alike = {name for name, page in pages.items() if page.tokens == pages[own].tokens and name != own}
        yield f"after a page with as many tokens, {pages[own].tokens:,}", lambda one: one.after in alike
    for after in dict.fromkeys(one.after for one in readings if one.fails):
        yield f"after {after or 'nothing'}", lambda one, after=after: one.after == after  # type: ignore[misc]
    at = next(one.place for one in readings if one.fails)
    yield f"from reading {at} of the process on", lambda one: one.place >= at
    for period in range(2, MOST_PERIOD + 1):
        words = f"in every {ordinal(period)} reading of the process, from the {ordinal(at)} on"
        yield words, lambda one, period=period: (one.place - at) % period == 0  # type: ignore[misc]


def of_ends(cut: Mapping[int, int], whole: Mapping[int, int]) -> Description | None:
    """Return that rows of a batch end where another row ended; None if they do not.

    Args:
        cut: number of tokens of each row that ends early, by the row's number.
        whole: that of the other rows.
    """
    ends = {*cut.values()}
    at = [row for row, tokens in whole.items() if {tokens} == ends]
    if not at or any(tokens < whole[at[0]] for tokens in whole.values()):
        return None
    rows, others = (f"row{'s' * (len(of) > 1)} {joined([*map(str, sorted(of))])}" for of in (cut, at))
    end, are = ("end", "are") if len(cut) > 1 else ("ends", "is")
    where = f"{rows} {end} at step {whole[at[0]]:,}, where {others} ended, and {are} right up to there"
    return Description("batch-ends", f"whether a batch ends with its first ended row: {where}", 1.0, len(cut))


def of_other_page(text: str, own: str, pages: Mapping[str, PageSeen]) -> Iterator[Description]:
    """Yield that a text is, or nearly is, that of a page which was read before."""
    for name, page in pages.items():
        if name != own and page.text == text.strip() and text.strip():
            size = ", a page with as many tokens" * (own in pages and page.tokens == pages[own].tokens)
            yield Description(AS_OTHER_PAGE, f"the text is that of {name}{size}", 1.0, len(text))
    yield from _nearly_of_other_page(text, own, pages)


def _nearly_of_other_page(text: str, own: str, pages: Mapping[str, PageSeen]) -> Iterator[Description]:
    """Yield that a text is nearly that of a page which was read rightly before, and far from its own page's."""
    others = {name: page for name, page in pages.items() if name != own and page.own == page.text}
    if own not in pages or not others or len(text) < LEAST_TEXT:
        return
    apart = {name: _apart(text, page.text) for name, page in others.items()}
    name = min(apart, key=lambda one: apart[one])
    from_own, of_pages = _apart(text, pages[own].text), _apart(pages[own].text, others[name].text)
    if apart[name] <= MOST_APART and apart[name] <= NEARER * min(from_own, of_pages):
        size = f"{apart[name]:.0%} of its characters differ from that page's text, and {from_own:.0%} from its own"
        words = f"the page is read as {name} was, which was read before and is right: {size}"
        yield Description(AS_OTHER_PAGE, words, 1.0, len(text))


def _apart(one: str, other: str) -> float:
    """Return the edit distance of two texts over the longer one's length."""
    return Levenshtein.normalized_distance(one, other)
