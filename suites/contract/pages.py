"""Test pages drawn with integer arithmetic, which gives the same bytes on every machine.

``python -m suites.contract.pages FOLDER`` writes them as files.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from pytest_dsocr.models.spec import ModelSpec

ORIENTATION_TAG, ROTATED_BY_90 = 0x0112, 6
CELL_PX = 12

Canvas = NDArray[np.uint8]


def noise(height: int, width: int, seed: int) -> NDArray[np.uint32]:
    """Return a hash of each pixel's coordinates, ``[H, W]``."""
    y, x = np.mgrid[:height, :width].astype(np.uint32)
    value: NDArray[np.uint32] = x * np.uint32(0x9E3779B1) + y * np.uint32(0x85EBCA77) + np.uint32(seed)
    for shift, factor in ((15, 0x2C1B3C6D), (12, 0x297A2D39)):
        value = (value ^ (value >> np.uint32(shift))) * np.uint32(factor)
    return value ^ (value >> np.uint32(15))


def canvas(width: int, height: int, seed: int = 1) -> Canvas:
    """Draw white paper with dark strokes in lines of cells, a tint that grows along both axes, and a coloured block."""
    cells = noise(height // CELL_PX + 1, width // CELL_PX + 1, seed)
    strokes = np.kron(cells, np.ones((CELL_PX, CELL_PX), np.uint32))[:height, :width]
    rows, columns = np.arange(height)[:, None], np.arange(width)[None]
    inside = (rows % CELL_PX < 9) & ((strokes >> np.uint32(columns % CELL_PX)) & 1).astype(bool)
    ink = np.where(inside, noise(height, width, seed + 1) % 96, 255 - noise(height, width, seed + 2) % 24)
    page = np.repeat(ink[:, :, None], 3, axis=2).astype(np.uint8)
    page[:, :, 1] -= (rows * 24 // height).astype(np.uint8)
    page[:, :, 2] -= (columns * 24 // width).astype(np.uint8) // 2
    page[: height // 4, : width // 5] = (200, 30, 60)
    return page


def rgb(width: int, height: int, seed: int = 1) -> Image.Image:
    return Image.fromarray(canvas(width, height, seed))


def halves(width: int, height: int) -> Image.Image:
    """Draw a page that is white on the left and black on the right."""
    page = np.zeros((height, width, 3), np.uint8)
    page[:, : width // 2] = 255
    return Image.fromarray(page)


def painted(columns: int, rows: int, tile_px: int = 480) -> Image.Image:
    """Draw tiles row by row, each in the colour of :func:`tile_colour`."""
    colours = np.array([tile_colour(tile) for tile in range(columns * rows)], np.uint8)
    return Image.fromarray(colours.reshape(rows, columns, 3).repeat(tile_px, axis=0).repeat(tile_px, axis=1))


def tile_colour(tile: int) -> tuple[int, int, int]:
    """Return a colour whose channels differ: with channels exchanged it is the colour of no tile."""
    return 20 + 25 * tile, 240 - 25 * tile, (90 + 61 * tile) % 256


def rotated() -> Image.Image:
    page = rgb(900, 700, seed=6)
    page.getexif()[ORIENTATION_TAG] = ROTATED_BY_90
    return page


def text_in_alpha() -> Image.Image:
    """Opaque strokes over colours that show only where alpha is dropped."""
    page = np.dstack([canvas(800, 1000, seed=7), canvas(800, 1000, seed=8)[:, :, 0]])
    return Image.fromarray(page)


def grey_and_alpha() -> Image.Image:
    return Image.fromarray(canvas(660, 900, seed=12)[:, :, :2].copy())


def sixteen_bit() -> Image.Image:
    """Levels below and above 255, where the conversion clips."""
    return Image.fromarray((noise(720, 1000, seed=11) % 320).astype(np.uint16))


def palette() -> Image.Image:
    indices = (noise(900, 1300, seed=9) % 16).astype(np.uint8)
    page = Image.fromarray(np.minimum(indices, canvas(1300, 900, seed=9)[:, :, 0] // 8))
    page.putpalette([(index * factor + 40) % 256 for index in range(256) for factor in (37, 91, 153)])
    return page


def cmyk() -> Image.Image:
    page = np.dstack([canvas(700, 700, seed=10), canvas(700, 700, seed=13)[:, :, 0] // 3])
    return Image.frombytes("CMYK", (700, 700), page.tobytes())


PAGES: Mapping[str, Callable[[], Image.Image]] = {
    "portrait": lambda: rgb(850, 1300),
    "landscape": lambda: rgb(1400, 800, seed=2),
    "square": lambda: rgb(1000, 1000, seed=3),
    "tiny": lambda: rgb(32, 20, seed=4),
    "exactly_640": lambda: rgb(640, 640, seed=5),
    "641_wide": lambda: rgb(641, 640),
    "641_high": lambda: rgb(640, 641),
    "panorama": lambda: rgb(5000, 600),
    "column": lambda: rgb(600, 5000),
    "1500_square": lambda: rgb(1500, 1500),
    "screen": lambda: rgb(1920, 1080),
    "a4": lambda: rgb(1240, 1754),
    "exif": rotated,
    "alpha": text_in_alpha,
    "grey": lambda: rgb(750, 600, seed=14).convert("L"),
    "palette": palette,
    "cmyk": cmyk,
    "16_bit": sixteen_bit,
    "grey_alpha": grey_and_alpha,
    "1_bit": lambda: Image.fromarray(noise(660, 620, seed=15) % 3 == 0),
}

ZERO_SUM_PAGES: Mapping[str, Callable[[], Image.Image]] = {
    "halves": lambda: halves(1280, 640),
    "square_halves": lambda: halves(1024, 1024),
}
"""Pages whose normalised pixels sum to exactly zero, which the vendor's code takes for no image.

``halves`` sums to zero in Tiny and Small, and its two crops together in Gundam. ``square_halves`` also does in Base and
Gundam.
"""


def write_page(name: str, folder: Path) -> Path:
    """Write a page losslessly with its EXIF data, and return the file's path."""
    page = {**PAGES, **ZERO_SUM_PAGES}[name]()
    path = folder / f"{name}.{'tif' if page.mode == 'CMYK' else 'png'}"
    page.save(path, exif=page.getexif(), compress_level=0)
    return path


def write_wide(folder: Path, family: ModelSpec) -> Path:
    """Write a page that the model cuts into two crops."""
    path, width = folder / "wide.png", family.tiling.crop_px + 60
    rgb(width, width // 2, seed=6).save(path, compress_level=1)
    return path


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for page_name in PAGES:
        write_page(page_name, folder)
