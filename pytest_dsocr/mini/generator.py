"""Pages from a seed: what is drawn on them is known, and the same seed gives the same bytes."""

from __future__ import annotations

import math
from itertools import islice
from random import Random

from PIL import Image, ImageDraw

from pytest_dsocr.contract.grid import CROP_PX, Grid, crop_count, crop_grid
from pytest_dsocr.errors import DsocrError
from pytest_dsocr.mini.canvas import Canvas, Draft, union
from pytest_dsocr.mini.kinds import KINDS
from pytest_dsocr.mini.page import Block, Page, Rect, Word
from pytest_dsocr.mini.sheet import Sheet
from pytest_dsocr.mini.typography import Colour

GRIDS: dict[Grid, float] = {(2, 3): 50, (3, 2): 15, (2, 2): 10, (1, 2): 10, (1, 3): 8, (2, 1): 4, (1, 1): 3}
"""How many in a hundred pages have each grid."""
MOST_BLOCKS = 14
PAD_PX = 4
"""Between a block's ink and its box, at crop scale."""
MOST_TILT_DEGREES = 0.7


def generate(seed: int, *, level: float = 1.0, grid: Grid | None = None) -> Page:
    """Draw the page of ``seed``: at ``level`` 0 one block of about three large words, at 1 a full page.

    ``grid`` is what ``crop_grid`` will say of the page; where it is None, the seed decides.

    Raises:
        DsocrError: where ``level`` is not in 0 to 1, or no page is made for ``grid``.
    """
    if not 0 <= level <= 1:
        raise DsocrError(f"there is no level {level} of pages; give one from 0 to 1")
    rng = Random(f"page {seed} at {level:.6f}")
    drawn = rng.choices(list(GRIDS), list(GRIDS.values()))[0]
    grid = grid or drawn
    if grid not in GRIDS:
        raise DsocrError(f"no page is made for a grid of {grid}; give one of {', '.join(map(str, GRIDS))}")
    return _page(rng, seed, level, grid)


def _page(rng: Random, seed: int, level: float, grid: Grid) -> Page:
    kind = _kind(rng, level, grid)
    size = _size(rng, grid)
    canvas = Canvas(_paper(rng, size), *_crop_scale(size, grid))
    sheet = Sheet(canvas, rng, _budget(rng, level, grid), 2 - level if kind == "note" else 1)
    most = 1 + round((MOST_BLOCKS - 1) * level)
    drafts = list(islice((draft for draft in KINDS[kind].write(sheet) if draft), most))
    degrees = rng.uniform(-MOST_TILT_DEGREES, MOST_TILT_DEGREES) if rng.random() < 1 / 3 else 0.0
    image = canvas.image
    if degrees:
        image = image.rotate(degrees, Image.Resampling.BILINEAR, fillcolor=image.getpixel((0, 0)))
    _speckle(rng, image)
    return Page(kind, seed, image, tuple(_block(draft, canvas, degrees) for draft in drafts))


def _kind(rng: Random, level: float, grid: Grid) -> str:
    fitting = [name for name, kind in KINDS.items() if grid in kind.grids and name != "note"]
    return rng.choice(fitting) if rng.random() < level else "note"


def _budget(rng: Random, level: float, grid: Grid) -> int:
    full = rng.triangular(20, 90, 60) * min(1, 0.3 + 0.14 * crop_count(grid))
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
    white = rng.random() < 0.4
    light: Colour = (255, 255, 255) if white else (rng.randint(240, 255), rng.randint(240, 255), rng.randint(234, 255))
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


def _block(draft: Draft, canvas: Canvas, degrees: float) -> Block:
    words = tuple(Word(word.text, _tilted(word.rect, canvas.image, degrees)) for word in draft.words)
    boxes = (union(_tilted(ink, canvas.image, degrees) for ink in inks) for inks in draft.inks)
    return Block(draft.label, tuple(_padded(box, canvas) for box in boxes), draft.text, words)


def _tilted(rect: Rect, image: Image.Image, degrees: float) -> Rect:
    """Give the bounds of ``rect`` on the page turned counter-clockwise around its middle."""
    if not degrees:
        return rect
    sine, cosine = math.sin(math.radians(degrees)), math.cos(math.radians(degrees))
    middle_x, middle_y = image.width / 2, image.height / 2
    corners = [(x - middle_x, y - middle_y) for x in (rect.x1, rect.x2) for y in (rect.y1, rect.y2)]
    xs = [middle_x + x * cosine + y * sine for x, y in corners]
    ys = [middle_y - x * sine + y * cosine for x, y in corners]
    return Rect(min(xs), min(ys), max(xs), max(ys))


def _padded(rect: Rect, canvas: Canvas) -> Rect:
    pad_x, pad_y = PAD_PX * canvas.scale_x, PAD_PX * canvas.scale_y
    width, height = canvas.image.size
    return Rect(
        max(rect.x1 - pad_x, 0), max(rect.y1 - pad_y, 0), min(rect.x2 + pad_x, width), min(rect.y2 + pad_y, height)
    )
