"""The views of a page that go into the encoders: the whole page, and its crops."""

from __future__ import annotations

from PIL import Image, ImageOps

from pytest_dsocr.contract.grid import CROP_PX, Grid, crop_count
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.foundation.errors import DsocrError

GREY = (127, 127, 127)


def global_view(page: Image.Image, preset: Preset) -> Image.Image:
    """Give the square view of the whole RGB page, ``preset.view_size`` px wide.

    The page is centred between grey bars. Without crops and at up to 640 px it is squashed into the square instead.

    Raises:
        DsocrError: where not one pixel of the page's short side would be left. Of the vendor's code, Pillow 13 makes a
            grey view there, and any older one a ``ValueError``.
    """
    side = preset.view_size
    if preset.is_squashed:
        return page.resize((side, side))
    if round(min(page.size) / max(page.size) * side) == 0:
        raise DsocrError(
            f"a page of {page.width} x {page.height} px vanishes in a view of {side} x {side}; "
            "cut it into pages that are less narrow"
        )
    return ImageOps.pad(page, (side, side), color=GREY)


def crops(page: Image.Image, grid: Grid) -> list[Image.Image]:
    """Stretch the RGB page over ``grid`` and give its 640 px crops row by row; none for ``(1, 1)``."""
    if not crop_count(grid):
        return []
    columns, rows = grid
    stretched = page.resize((columns * CROP_PX, rows * CROP_PX))
    corners = [(column * CROP_PX, row * CROP_PX) for row in range(rows) for column in range(columns)]
    return [stretched.crop((left, top, left + CROP_PX, top + CROP_PX)) for left, top in corners]
