"""Pages from a seed: what is drawn on them is known, and the same seed gives the same bytes."""

from __future__ import annotations

from itertools import islice
from math import log
from random import Random

from PIL import Image, ImageDraw

from ci.training.canvas import Canvas, Draft, union
from ci.training.kinds import KINDS
from ci.training.page import Block, Page, Rect
from ci.training.sheet import Sheet
from ci.training.typography import Colour
from pytest_dsocr.contract.presets import CANDIDATES, CROP_PX, MAX_CROPS, Grid, crop_count, crop_grid
from pytest_dsocr.foundation.errors import DsocrError

GRIDS: dict[Grid, float] = {(2, 3): 50, (3, 2): 15, (2, 2): 10, (1, 2): 10, (1, 3): 8, (2, 1): 4, (1, 1): 3}
"""How many in a hundred pages have each grid."""
LEAST_BLOCKS, MOST_BLOCKS = 2, 14
"""Of a full page; one on which fewer found room is drawn again."""
PAD_PX = 4
"""Between a block's ink and its box, at crop scale."""
MOST_TILT_TENTHS = 7
"""Of a degree."""


def generate(seed: int, *, level: float = 1.0, grid: Grid | None = None) -> Page:
    """Draw the page of ``seed``: at ``level`` 0 one block of about three large words, at 1 a full page.

    ``grid`` is what ``crop_grid`` will say of the page; where it is None, the seed decides.

    Raises:
        DsocrError: where ``level`` is not in 0 to 1, or no page is cut into ``grid``.
    """
    if not 0 <= level <= 1:
        raise DsocrError(f"there is no level {level} of pages; give one from 0 to 1")
    rng = Random(f"page {seed} at {level:.6f}")
    drawn = rng.choices(list(GRIDS), list(GRIDS.values()))[0]
    grid = grid or drawn
    if grid not in ((1, 1), *CANDIDATES):
        raise DsocrError(f"no page is cut into a grid of {grid}; give one of up to {MAX_CROPS} crops, or (1, 1)")
    while True:
        page = _page(rng, seed, level, grid)
        if len(page.blocks) >= min(LEAST_BLOCKS, most_blocks(level)):
            return page


def most_blocks(level: float) -> int:
    """Tell how many blocks a page of ``level`` has at most."""
    return 1 + round((MOST_BLOCKS - 1) * level)


def _page(rng: Random, seed: int, level: float, grid: Grid) -> Page:
    kind = _kind(rng, level, grid)
    size = _size(rng, grid)
    tilt_degrees = rng.randint(-MOST_TILT_TENTHS, MOST_TILT_TENTHS) / 10 if rng.random() < 0.36 else 0.0
    canvas = Canvas(_paper(rng, size), *_crop_scale(size, grid), tilt_degrees)
    sheet = Sheet(canvas, rng, _budget(rng, level, grid), largeness=1 + (1 - level) / 2 if kind == "note" else 1)
    drafts = list(islice((draft for draft in KINDS[kind].write(sheet) if draft), most_blocks(level)))
    _speckle(rng, canvas.image)
    return Page(kind, seed, canvas.image, tuple(_block(draft, canvas) for draft in drafts))


def _kind(rng: Random, level: float, grid: Grid) -> str:
    if rng.random() >= level:
        return "note"
    shares = {name: kind.share for name, kind in KINDS.items() if _drawn_like(grid) in kind.grids}
    return rng.choices(list(shares), list(shares.values()))[0]


def _drawn_like(grid: Grid) -> Grid:
    """Give the grid that pages are trained on whose shape is nearest: its kinds look right on this one too."""
    return (
        grid if grid in GRIDS else min(GRIDS, key=lambda other: abs(log(grid[0] / grid[1]) - log(other[0] / other[1])))
    )


def _budget(rng: Random, level: float, grid: Grid) -> int:
    full = rng.triangular(40, 105, 90) * min(1, 0.3 + 0.14 * crop_count(grid))
    return round(3 + (full - 3) * level)


def _crop_scale(size: tuple[int, int], grid: Grid) -> tuple[float, float]:
    return size if not crop_count(grid) else (grid[0] * CROP_PX, grid[1] * CROP_PX)


def _size(rng: Random, grid: Grid) -> tuple[int, int]:
    """Draw a size in pixels of the page for which ``grid`` is chosen."""
    while True:
        if not crop_count(grid):
            size = rng.randint(480, CROP_PX), rng.randint(480, CROP_PX)
        else:
            stretch, aspect = rng.triangular(0.8, 1.24, 1.15), rng.uniform(0.96, 1.04)
            size = round(grid[0] * CROP_PX / stretch * aspect), round(grid[1] * CROP_PX / stretch / aspect)
        if crop_grid(*size) == grid:
            return size


def _paper(rng: Random, size: tuple[int, int]) -> Image.Image:
    """Make an empty page, white or tinted, now and then darker at one edge."""
    tint = rng.randint(240, 255), rng.randint(240, 255), rng.randint(234, 255)
    light: Colour = rng.choice((tint, tint, (255, 255, 255)))
    if rng.random() < 0.7:
        return Image.new("RGB", size, light)
    shades = range(rng.randint(3, 9))
    ramp = Image.new("RGB", (len(shades), 1))
    ramp.putdata([(light[0] - shade, light[1] - shade, light[2] - shade) for shade in shades])
    turned = ramp.transpose(rng.choice((Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_90)))
    return turned.resize(size, Image.Resampling.NEAREST)


def _speckle(rng: Random, image: Image.Image) -> None:
    """Put some light grey dust on a page, or none."""
    draw = ImageDraw.Draw(image)
    for _ in range(rng.choice((0, 0, 0, 60, 200))):
        grey = rng.randint(170, 225)
        draw.point((rng.randrange(image.width), rng.randrange(image.height)), fill=(grey, grey, grey))


def _block(draft: Draft, canvas: Canvas) -> Block:
    return Block(draft.label, tuple(_padded(union(inks), canvas) for inks in draft.inks), draft.text, draft.words)


def _padded(rect: Rect, canvas: Canvas) -> Rect:
    pad_x, pad_y = PAD_PX * canvas.scale_x, PAD_PX * canvas.scale_y
    width, height = canvas.image.size
    return Rect(
        max(rect.x1 - pad_x, 0), max(rect.y1 - pad_y, 0), min(rect.x2 + pad_x, width), min(rect.y2 + pad_y, height)
    )
