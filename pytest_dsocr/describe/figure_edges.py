"""Rules that give a figure's four edges from its box, and which of them explain the figures that were cut.

Edges are left, top, right and bottom, in pixels of the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from pytest_dsocr.base.words import are, count
from pytest_dsocr.contract.markup import UNITS, Box, to_pixels

VIEW_PX = 1024
"""Sides of the view of a whole page in the default preset of each model."""
OTHERS = 2
"""Number of other rules that are named: the simplest ones."""
Size = tuple[int, int]
Edges = tuple[int, int, int, int]
Whole = Callable[[float], int]
"""Returns a whole number of pixels."""
FigureCut = Callable[[Box, Size], Edges]
"""Return the edges of a figure from its box and the size of the page."""


class FigureRule(NamedTuple):
    """A rule for the edges of figures."""

    words: str
    """Words after "each figure's", or "its"."""
    cut: FigureCut
    is_on_page: bool = True
    """Whether figures are cut out of the page, so that their corners tell where."""


@dataclass(frozen=True)
class FigureSeen:
    """Size and place of a figure that was cut, as far as they are known."""

    box: Box
    size: Size
    start: Size | None
    """Left and upper edge, if the figure's content tells them."""


def _edges(box: Box, page_px: Size, *, units: float = UNITS, start: Whole = int, end: Whole = int) -> Edges:
    wide, high = page_px
    x1, y1 = (start(value / units * side) for value, side in zip(box[:2], page_px, strict=True))
    return x1, y1, end(box.x2 / units * wide), end(box.y2 / units * high)


def _clamped(box: Box, page_px: Size) -> Edges:
    x1, y1, x2, y2 = to_pixels(box, *page_px)
    wide, high = page_px
    return min(max(x1, 0), wide), min(max(y1, 0), high), min(max(x2, 0), wide), min(max(y2, 0), high)


def _of_square(box: Box, page_px: Size) -> Edges:
    square = max(page_px)
    sides = zip(box, page_px * 2, strict=True)
    x1, y1, x2, y2 = (int(value / UNITS * square - (square - side) / 2) for value, side in sides)
    return x1, y1, x2, y2


def _of_view(box: Box, _: Size) -> Edges:
    return to_pixels(box, VIEW_PX, VIEW_PX)


def _exchanged(box: Box, page_px: Size) -> Edges:
    return to_pixels(box, *page_px[::-1])


def _more(value: float) -> int:
    return int(value) + 1


def _fewer(value: float) -> int:
    return int(value) - 1


def _by(words: str, **how: Whole | float) -> FigureRule:
    return FigureRule(words, partial(_edges, **how))  # type: ignore[arg-type]


FIGURE_RULES: Mapping[str, FigureRule] = {
    "clamped": FigureRule("edges are clamped to the page", _clamped),
    "rounded": _by("box is rounded to pixels, not truncated", start=round, end=round),
    "longer": _by("right and lower edges are one pixel further", end=_more),
    "shorter": _by("right and lower edges are one pixel less", end=_fewer),
    "rounded-up": _by("box is rounded up to pixels", start=math.ceil, end=math.ceil),
    "enclosing": _by("right and lower edges are rounded up to pixels", end=math.ceil),
    "rounded-ends": _by("right and lower edges are rounded to pixels, not truncated", end=round),
    "rounded-starts": _by("left and upper edges are rounded to pixels, not truncated", start=round),
    "inner": _by("left and upper edges are rounded up to pixels", start=math.ceil),
    "later": _by("left and upper edges are one pixel further", start=_more),
    "earlier": _by("left and upper edges are one pixel less", start=_fewer),
    "over-1000": _by("box is in units of 1/1000, not 1/999", units=1000),
    "over-1024": _by("box is in units of 1/1024, not 1/999", units=1024),
    "of-square": FigureRule(
        "box is taken for one on the square around the page, with the bars of its view", _of_square
    ),
    "of-view": FigureRule(
        f"edges are those in the view of {VIEW_PX:,} px, not in the page", _of_view, is_on_page=False
    ),
    "sides-exchanged": FigureRule("edges have the page's width and height exchanged", _exchanged),
}
"""Other rules than the vendor's, the simplest first."""


def _fits(rule: FigureRule, figure: FigureSeen, page_px: Size) -> bool:
    """Return whether a rule gives all that is known of a figure."""
    x1, y1, x2, y2 = rule.cut(figure.box, page_px)
    is_there = figure.start in (None, (x1, y1)) or not rule.is_on_page
    return is_there and (x2 - x1, y2 - y1) == figure.size


def rules_of(figures: Sequence[FigureSeen], page_px: Size) -> list[str]:
    """Return the names of the rules that explain all figures."""
    return [name for name, rule in FIGURE_RULES.items() if all(_fits(rule, one, page_px) for one in figures)]


def in_words(names: Sequence[str], figures: Sequence[FigureSeen], page_px: Size) -> str:
    """Name the first of some rules, how many edges it moves, and the others that explain the figures too."""
    first, *others = (FIGURE_RULES[name] for name in names)
    moved = sum(
        own != right
        for one in figures
        for own, right in zip(first.cut(one.box, page_px), to_pixels(one.box, *page_px), strict=True)
    )
    which = f"{moved} of {count(4 * len(figures), 'edge')} {are(moved, 'differ', 'differs')} by it"
    more = " or ".join(f"if the {one.words}" for one in others[:OTHERS])
    return f"{first.words}; {which}{f', and all fit as well {more}' if others else ''}"
