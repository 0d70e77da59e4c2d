"""Pixels of a page that was resized before: they are made again in each way, and compared.

Shapes: N views, 3 colours, H x W pixels.
"""

import math
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from pytest_dsocr.contract.image import GREY, global_view
from pytest_dsocr.contract.presets import Grid, Preset, crop_count
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.distinct import BITS, FORMS, HeldValues, said
from pytest_dsocr.describe.ids import LIMITS_PX
from pytest_dsocr.describe.levels import LEVELS, Line
from pytest_dsocr.describe.lights import LIGHTS, Light, ToLevels
from pytest_dsocr.describe.margins import without_margins

FILTERS = ("bicubic", "lanczos", "bilinear", "box", "nearest", "hamming")
NO_CROPS = (1, 1)
FITTED = 1
"""Colour by which a way is chosen: green."""
TINY = 1e-9
FACTORS = (2, 3, 4, 8)
ALIGNED = (4, 8, 16, 32, 64, 256)
"""Numbers of bytes of which rows in memory begin at multiples."""
MOST_MOVES = 4
"""Largest number of moves of a fitted line by one level."""
WHOLE = 8
"""Bits of a level that is right."""


class Source(NamedTuple):
    """The page of some views."""

    page: Image.Image
    """Page in RGB, loaded by the contract."""
    preset: Preset
    is_view: bool
    """Whether the views show the whole page; otherwise they are its crops."""


class _Way(NamedTuple):
    text: str
    page: Image.Image
    """The page that is seen."""
    grid: Grid
    """Columns and rows of its crops."""
    light: Light | None = None
    """Space in which the page is resized, if it is not that of its levels."""


def resized(actual: Tensor, expected: Tensor, source: Source) -> Description | None:
    """Describe views of a page that was resized before, by the way that comes nearest.

    The way is found on even lines of one colour, and verified on odd lines of all.

    Args:
        actual: the subject's levels ``[N, 3, H, W]``.
        expected: the expected levels, of any number of views.
        source: the page.
    """

    def left(way: _Way) -> float:
        return _left(actual, _made(way, way.page.split()[FITTED], source), FITTED)

    of_page = (_of_source, _of_margins, partial(_of_grids, len(actual)), _of_halves, _of_memory)
    others = chain.from_iterable(of(source) for of in of_page)
    found = [(left(way), way) for way in others]
    is_found = not all(apart for apart, _ in found)
    if actual.shape == expected.shape and not is_found:
        grid = _grid(source)
        ways = [_Way(f"the page is resized in {one.text}", source.page, grid, one) for one in LIGHTS]
        ways += [*_of_lines(actual, expected, source, grid)]
        found += [(left(way), way) for way in (*ways, *_of_bits(actual, expected, source, grid))]
    limits = [
        (left(way), limit, way)
        for limit in LIMITS_PX
        if limit < max(source.page.size) and not is_found
        for way in [_shrunk(source, limit, FILTERS[0])]
    ]
    if limits:
        _, nearest, _ = min(limits, key=lambda one: one[0])
        found += [(apart, way) for apart, _, way in limits]
        sides = dict.fromkeys((nearest, source.preset.view_size))  # a bicubic page of another size may come nearer
        smaller = [side for side in sides if side < max(source.page.size)]
        ways = [_shrunk(source, side, name) for side in smaller for name in FILTERS[1:]]
        found += [(left(way), way) for way in ways]
    if not found:
        return None
    apart, way = min(found, key=lambda one: one[0])
    if math.isinf(apart):
        return None
    made = torch.stack([_made(way, one, source) for one in way.page.split()], 1)
    right = expected if expected.shape == actual.shape else actual.mean()
    share = 1 - float((actual - made)[..., 1::2, :].norm() / (actual - right)[..., 1::2, :].norm().clamp_min(TINY))
    return Description("resized", way.text, max(0.0, share), actual.numel())


def _left(actual: Tensor, made: Tensor, colour: int) -> float:
    """Return the difference that is left on the even lines of a colour."""
    own = actual[:, colour]
    return float((own - made)[..., ::2, :].norm()) if made.shape == own.shape else math.inf


def _of_bits(actual: Tensor, expected: Tensor, source: Source, grid: Grid) -> Iterator[_Way]:
    """Yield the page with levels of fewer bits; the bits of each colour are those that come nearest."""
    bands = source.page.split()
    largest = (actual - expected).abs().amax((0, 2, 3)).tolist()

    def held(colour: int, bits: int, form: HeldValues) -> Image.Image:
        band = bands[colour]
        levels = form(_levels(band), bits).to(torch.uint8) if bits < WHOLE else None
        return band if levels is None else Image.frombytes("L", band.size, bytes(levels.numpy()))

    def left(colour: int, form: HeldValues, bits: int) -> float:
        return _left(actual, _made(_Way("", source.page, grid), held(colour, bits, form), source), colour)

    near = [[one for one in BITS if top / 3 <= 2 ** (WHOLE - one) <= 2 * top] for top in largest]
    for words, form in FORMS.items():
        bits = [min(some, key=partial(left, k, form), default=WHOLE) for k, some in enumerate(near)]
        if min(bits) < WHOLE:
            page = Image.merge("RGB", [held(k, one, form) for k, one in enumerate(bits)])
            yield _Way(f"in the page, before it is resized, {said(bits, words)}", page, grid)


def _of_lines(actual: Tensor, expected: Tensor, source: Source, grid: Grid) -> Iterator[_Way]:
    """Yield the page with the levels of each colour on another line, rounded or cut off to whole ones."""
    lines = [Line.fitted(actual[:, k, ::2].flatten(), expected[:, k, ::2].flatten()) for k in range(3)]
    known = [one for one in lines if one is not None]
    if len(known) < len(lines):
        return
    bands, way = source.page.split(), _Way("", source.page, grid)

    def left(line: Line, k: int) -> float:
        return _left(actual, _made(way, bands[k].point(_table(line, torch.round)), source), k)

    def nearest(line: Line, k: int) -> Line:
        for _ in range(MOST_MOVES):
            line, before = min(line.neighbours, key=partial(left, k=k)), line
            if line == before:
                break
        return line

    of_line = {one: nearest(one, k) for k, one in enumerate(known)}
    found = [of_line[one] for one in known]
    said = [f"{band}: {one.words}" for band, one in zip(("red", "green", "blue"), found, strict=True)]
    text = found[0].words if len({*found}) == 1 else "; ".join(said)
    for rounded in (torch.round, torch.floor):
        tables = [_table(one, rounded) for one in found]
        yield _Way(f"in the page, before it is resized, {text}", source.page.point([*chain(*tables)]), grid)


def _table(line: Line, rounded: ToLevels) -> list[int]:
    return [int(one) for one in rounded(line.at(torch.arange(LEVELS))).tolist()]


def _of_source(source: Source) -> Iterator[_Way]:
    """Yield another page that the same code may see by mistake."""
    page, preset = source.page, source.preset
    grid, side = preset.grid(*page.size), preset.tiling.crop_px
    if not crop_count(grid):
        return
    if source.is_view:
        stretched = page.resize((grid[0] * side, grid[1] * side))
        yield _Way("the view is of the page already stretched over its grid of crops", stretched, NO_CROPS)
    else:
        yield _Way("the crops are cut out of the view of the whole page", global_view(page, preset), grid)


def _of_margins(source: Source) -> Iterator[_Way]:
    """Yield the page without its margins, in the grid of the smaller page."""
    for text, page in without_margins(source.page):
        yield _Way(text, page, _grid(source._replace(page=page)))


def _of_memory(source: Source) -> Iterator[_Way]:
    """Yield the page whose rows lie at other distances in memory than they are read at: it is sheared."""
    pixels = np.asarray(source.page).reshape(source.page.height, -1)
    width, grid = pixels.shape[1], _grid(source)
    for gap, align in {-width % align: align for align in reversed(ALIGNED) if width % align}.items():
        padded = np.pad(pixels, ((0, 0), (0, gap))).ravel()
        spread = np.pad(pixels.ravel(), (0, gap * len(pixels))).reshape(len(pixels), -1)
        pitches = {(width + gap, width): padded, (width, width + gap): spread[:, :width].ravel()}
        for (lie, read), data in pitches.items():
            seen = Image.frombytes("RGB", source.page.size, data[: pixels.size].tobytes())
            text = f"the page's rows lie {lie:,} bytes apart in memory and are read {read:,} apart"
            yield _Way(f"{text}: a row of {width:,} bytes is no multiple of {align}", seen, grid)


def _of_halves(source: Source) -> Iterator[_Way]:
    """Yield the page that is first shrunk by a whole factor, by the mean of its pixels."""
    side = source.preset.view_size if source.is_view else source.preset.tiling.crop_px
    for factor in FACTORS:
        if 2 * max(source.page.size) > factor * side:
            text = f"the page is first shrunk by {factor}: each pixel is the mean of {factor} x {factor}"
            yield _Way(text, source.page.reduce(factor), _grid(source))


def _grid(source: Source) -> Grid:
    """Return the grid in which a page is cut, of its size before a change."""
    return NO_CROPS if source.is_view else source.preset.grid(*source.page.size)


def _of_grids(crops: int, source: Source) -> Iterator[_Way]:
    """Yield the page cut into as many crops as there are, by another grid."""
    own = source.preset.grid(*source.page.size)
    if own == NO_CROPS and crops == 1 and not source.is_view:
        yield _Way("a page that is not cut is one crop", source.page, NO_CROPS)
    for grid in source.preset.tiling.grids if not source.is_view else ():
        if grid != own and crop_count(grid) == crops:
            yield _Way(f"the crops are those of a grid of {grid[0]} x {grid[1]}", source.page, grid)


def _shrunk(source: Source, limit: int, method: str) -> _Way:
    page = source.page.copy()
    page.thumbnail((limit, limit), Image.Resampling[method.upper()], reducing_gap=None)
    text = f"the page is first shrunk to at most {limit:,} px a side, by Pillow's {method}"
    return _Way(text, page, NO_CROPS if source.is_view else source.preset.grid(*page.size))


def _made(way: _Way, band: Image.Image, source: Source) -> Tensor:
    """Return the levels of one colour, ``[N, H, W]``."""
    if way.light is not None:
        lit = way.light.of_level(_levels(band) / 255)
        band = Image.fromarray(lit.numpy())
    if source.is_view:
        return _seen(way, _viewed(way, band, source.preset))[None]
    (columns, rows), side = way.grid, source.preset.tiling.crop_px
    tiles = _seen(way, band.resize((columns * side, rows * side))).view(rows, side, columns, side)
    return tiles.transpose(1, 2).reshape(-1, side, side)


def _viewed(way: _Way, band: Image.Image, preset: Preset) -> Image.Image:
    if way.light is None or preset.is_squashed:
        return global_view(band, preset)
    grey = float(way.light.of_level(torch.tensor(GREY[0] / 255)))
    return ImageOps.pad(band, (preset.view_size,) * 2, color=grey)  # type: ignore[arg-type]


def _seen(way: _Way, band: Image.Image) -> Tensor:
    if way.light is None:
        return _levels(band)
    lit = torch.from_numpy(np.asarray(band).copy())
    return way.light.finished(way.light.to_level(lit) * 255)


def _levels(band: Image.Image) -> Tensor:
    data = torch.frombuffer(bytearray(band.tobytes()), dtype=torch.uint8)
    return data.view(band.height, band.width).float()
