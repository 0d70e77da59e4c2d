"""Relations between the figures that two sides cut out of a page: their sizes, their place and how they are encoded."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from PIL import Image

from pytest_dsocr.base.words import are, count, listed
from pytest_dsocr.contract.markup import Box, PixelBox
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.figure_edges import FigureSeen, Size, in_words, rules_of
from pytest_dsocr.describe.measured import measured
from pytest_dsocr.records.reference_result import CORNER_PX, Artefact, tables_of

FARTHEST_PX, CLEARLY = 4, 1.5
"""Farthest place of a figure's corner that is looked at, and the factor by which the best place must be nearer."""


@dataclass(frozen=True)
class Figure:
    """A figure that both sides wrote."""

    box: Box
    pixels: PixelBox
    """Place on the page, as the vendor cuts it."""
    actual: Artefact
    expected: Artefact


@dataclass(frozen=True)
class Figures:
    """The figures of a page."""

    of: Mapping[str, Figure]
    page: Image.Image
    drawn: Image.Image | None = None
    """The page with its boxes drawn on."""

    @cached_property
    def grey(self) -> npt.NDArray[np.uint8]:
        """Grey levels of the page ``[H, W]``, with black around it as far as a corner may lie."""
        return np.pad(np.asarray(self.page.convert("L")), CORNER_PX + FARTHEST_PX)

    @property
    def is_of_drawn(self) -> bool:
        """Whether all figures show the page with its boxes, as far as their corners tell."""
        corners = [one for one in self.of.values() if one.actual.corner is not None]
        if self.drawn is None or not corners:
            return False
        drawn = np.pad(np.asarray(self.drawn.convert("L")), CORNER_PX + FARTHEST_PX)
        return all(CLEARLY * _apart(drawn, one, (0, 0)) + 1 < _apart(self.grey, one, (0, 0)) for one in corners)


def of_files(
    actual: Mapping[str, Artefact], expected: Mapping[str, Artefact], figures: Figures
) -> Iterator[Description]:
    """Yield relations between the files that two sides wrote, the simplest first, and an anatomy last."""
    missing, surplus = (sorted({*one} - {*other}) for one, other in ((expected, actual), (actual, expected)))
    if missing or surplus:
        yield from measured(_names, missing, surplus, len(expected))
    else:
        yield from measured(_sizes, figures)
    wrong = [name for name, one in figures.of.items() if one.actual != one.expected]
    named = [
        f"{name}: {_side(one.actual)} for {_side(one.expected)}" for name, one in figures.of.items() if name in wrong
    ]
    text = (
        f"{len(wrong)} of {count(len(figures.of), 'figure')} {are(len(wrong), 'differ', 'differs')}: {listed(named, 3)}"
    )
    yield Description("anatomy", text, 0.0, len(figures.of))


def _side(file: Artefact) -> str:
    return f"{file.bytes:,} bytes" if file.size_px is None else f"{file.size_px[0]} x {file.size_px[1]} px"


def _names(missing: list[str], surplus: list[str], of: int) -> Iterator[Description]:
    """Yield files that are missing, surplus or under another name."""
    if len(missing) == len(surplus):
        pairs = ", ".join(f"{new} for {old}" for old, new in [*zip(missing, surplus, strict=True)][:3])
        yield Description("renamed", f"{count(len(missing), 'file')} under another name: {pairs}", 1.0, len(missing))
    elif not surplus:
        yield Description("missing", f"{len(missing)} of {count(of, 'file')} missing: {listed(missing, 3)}", 1.0, of)
    elif not missing:
        yield Description("surplus", f"{count(len(surplus), 'file')} more: {listed(surplus, 3)}", 1.0, of)


def _sizes(figures: Figures) -> Iterator[Description]:
    """Yield how figures of another size are cut, or how those of the same size are encoded."""
    sized = {name: one for name, one in figures.of.items() if one.actual.size_px and one.expected.size_px}
    other = [one for one in sized.values() if one.actual.size_px != one.expected.size_px]
    if not other:
        yield from _encoding(figures)
        return
    seen = [_seen(figures, one) for one in sized.values()]
    grown = [_grown(one) for one in sized.values()]
    usual = max(grown, key=grown.count)
    where, whose = _origin(figures), "each figure is" if len(grown) > 1 else "the only figure is"
    measured_words = f"{whose} {_in_words(*usual)}" if any(usual) else ""
    share = grown.count(usual) / len(grown)
    if rules := rules_of(seen, figures.page.size):
        words = in_words(rules, seen, figures.page.size)
        is_small = measured_words and share == 1 and max(map(abs, usual)) <= FARTHEST_PX
        yield Description(
            rules[0], f"{measured_words}: its {words}" if is_small else f"each figure's {words}{where}", 1.0, len(seen)
        )
    if any(usual):
        yield Description("grown", f"{measured_words}{where}", share, len(grown))


def _seen(figures: Figures, figure: Figure) -> FigureSeen:
    by = _place(figures, figure)
    start = None if by is None else (figure.pixels.x1 + by[0], figure.pixels.y1 + by[1])
    return FigureSeen(figure.box, figure.actual.size_px or (0, 0), start)


def _grown(figure: Figure) -> Size:
    (a, b), (c, d) = figure.actual.size_px or (0, 0), figure.expected.size_px or (0, 0)
    return a - c, b - d


def _in_words(wider: int, higher: int) -> str:
    sides = (wider, "wider", "narrower"), (higher, "higher", "lower")
    words = [(abs(by), more if by > 0 else less) for by, more, less in sides if by]
    if len(words) == 2 and words[0][0] == words[1][0]:
        return f"{count(words[0][0], 'pixel')} {words[0][1]} and {words[1][1]}"
    return " and ".join(f"{count(by, 'pixel')} {how}" for by, how in words)


def _origin(figures: Figures) -> str:
    """Return where the figures' upper left corners are on the page; empty if their content does not tell."""
    found = [place for one in figures.of.values() if (place := _place(figures, one))]
    if not found:
        return ""
    usual = max(found, key=found.count)
    if found.count(usual) < len(found):
        return ""
    return "; the origin is right" if usual == (0, 0) else f"; the origin is moved by ({usual[0]:+d}, {usual[1]:+d}) px"


def _place(figures: Figures, figure: Figure) -> tuple[int, int] | None:
    """Return the shift at which a figure's upper left corner is nearest to the page; None if several are near."""
    if figure.actual.corner is None:
        return None
    apart: dict[tuple[int, int], float] = {}
    for by in ((x, y) for x in range(-FARTHEST_PX, FARTHEST_PX + 1) for y in range(-FARTHEST_PX, FARTHEST_PX + 1)):
        if math.isfinite(distance := _apart(figures.grey, figure, by)):
            apart[by] = distance
    nearest = sorted(apart, key=apart.__getitem__)[:2]
    if len(nearest) < 2 or apart[nearest[1]] < CLEARLY * apart[nearest[0]] + 1:
        return None
    return nearest[0]


def _apart(grey: npt.NDArray[np.uint8], figure: Figure, by: tuple[int, int]) -> float:
    """Return the mean distance of a figure's corner from a padded page, moved by some pixels."""
    corner = np.array(figure.actual.corner, float)
    x, y = (figure.pixels[axis] + by[axis] + CORNER_PX + FARTHEST_PX for axis in (0, 1))
    seen = grey[max(y, 0) : max(y, 0) + corner.shape[0], max(x, 0) : max(x, 0) + corner.shape[1]]
    return float(np.abs(seen - corner).mean()) if seen.shape == corner.shape else math.inf


def _encoding(figures: Figures) -> Iterator[Description]:
    """Yield the quality of the subject's JPEG files; the vendor's is Pillow's default."""
    if figures.is_of_drawn:
        text = "figures are cut out of the page on which the boxes are already drawn"
        yield Description("drawn", text, 1.0, len(figures.of))
    tables = {one.actual.tables for one in figures.of.values() if one.actual.tables}
    if len(tables) != 1:
        return
    [own], default = tables, _tables(75)
    if own == default:
        text = "figures have the right size and quality, and other content: another page, or encoded twice"
        yield Description("other-content", text, 0.0, len(figures.of))
        return
    quality = next((one for one in range(1, 101) if _tables(one) == own), None)
    words = f"quality {quality}" if quality else "other quantisation tables than any of Pillow's"
    yield Description("quality", f"each figure is a JPEG of {words}, the vendor's is 75", 1.0, len(figures.of))


def _tables(quality: int) -> tuple[int, ...]:
    """Return the quantisation tables that Pillow writes for a quality."""
    buffer = io.BytesIO()
    Image.new("RGB", (8, 8)).save(buffer, "JPEG", quality=quality)
    with Image.open(buffer) as made:
        return tables_of(made)
