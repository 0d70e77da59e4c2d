"""How a page is seen: its presets, the grid of crops that it is cut into, and how many tokens it takes in the prompt.

Tokens of the prompt and features of vision are counted by different rules: the first by what the vendor's code writes
into the prompt, the second by what the encoders do. Where they differ, vision is scattered over the wrong positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from pytest_dsocr.foundation.errors import DsocrError

CROP_PX = 640
"""Side of a crop; a page that fits into one is not cut."""
MIN_CROPS = 2
MAX_CROPS = 9

Grid = tuple[int, int]
"""Columns and rows of crops."""


@cache
def candidates(most: int) -> tuple[Grid, ...]:
    """Give the grids of up to ``most`` crops, fewest first."""
    sides = range(1, most + 1)
    grids = ((columns, rows) for columns in sides for rows in sides if MIN_CROPS <= columns * rows <= most)
    return tuple(sorted(grids, key=math.prod))


CANDIDATES = candidates(MAX_CROPS)
"""The grids in the order in which the vendor tries them. Its order among equal numbers of crops is a set's, which
no page's choice depends on."""


def crop_count(grid: Grid) -> int:
    """Count the crops of ``grid``: none for ``(1, 1)``, where the page is not cut."""
    columns, rows = grid
    return 0 if columns * rows == 1 else columns * rows


def crop_grid(width_px: int, height_px: int, *, most: int = MAX_CROPS) -> Grid:
    """Give the columns and rows that a page of this size is cut into; ``(1, 1)`` is no cut.

    The grid whose aspect ratio is nearest to the page's. Of grids equally near, a larger one is taken if the page
    has more than half of its pixels.

    Args:
        width_px: the page's width.
        height_px: its height.
        most: the limit of crops; ports have others than the vendor.

    Raises:
        DsocrError: where the page has no pixels.
    """
    if width_px < 1 or height_px < 1:
        raise DsocrError(f"a page of {width_px} x {height_px} has no pixels; give one that has some")
    if width_px <= CROP_PX and height_px <= CROP_PX:
        return 1, 1
    grids = candidates(most)
    best, least = grids[0], math.inf
    for grid in grids:
        columns, rows = grid
        distance = abs(width_px / height_px - columns / rows)
        more_than_half = width_px * height_px > 0.5 * CROP_PX**2 * columns * rows
        if distance < least or (distance == least and more_than_half):
            best, least = grid, distance
    return best


PATCH_PX = 16
"""Side of the square of pixels that SAM turns into one patch; a view must hold at least one."""
SQUASHED_UP_TO_PX = 640


@dataclass(frozen=True)
class Preset:
    """Sizes in pixels, under the names of the vendor's ``infer``, and whether large pages are cut into crops.

    With ``crop`` the whole page is seen at ``base_size``, and ``image_size`` counts the tokens of a crop, which is
    640 px wide whatever ``image_size`` says. Without it the whole page is seen at ``image_size``.
    """

    name: str
    base_size: int
    image_size: int
    crop: bool

    def __post_init__(self) -> None:
        for size_name, size_px in (("base_size", self.base_size), ("image_size", self.image_size)):
            if size_px < PATCH_PX:
                raise DsocrError(
                    f"preset {self.name!r} has {size_name}={size_px}, which holds no image token; "
                    f"give at least {PATCH_PX} pixels"
                )

    @property
    def is_squashed(self) -> bool:
        """Whether the whole page is squashed into its view, and not padded: without crops, at up to 640 px."""
        return not self.crop and self.view_size <= SQUASHED_UP_TO_PX

    @property
    def view_size(self) -> int:
        """Side of the square view of the whole page, in pixels."""
        return self.base_size if self.crop else self.image_size


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("tiny", 512, 512, crop=False),
        Preset("small", 640, 640, crop=False),
        Preset("base", 1024, 1024, crop=False),
        Preset("large", 1280, 1280, crop=False),
        Preset("gundam", 1024, 640, crop=True),
    )
}


def get_preset(name_or_preset: str | Preset) -> Preset:
    """Give the preset of that name, whatever its case; a ``Preset`` is given back as it is.

    Raises:
        DsocrError: where there is none of that name.
    """
    if isinstance(name_or_preset, Preset):
        return name_or_preset
    try:
        return PRESETS[name_or_preset.lower()]
    except KeyError:
        raise DsocrError(
            f"there is no preset {name_or_preset!r}; give one of {', '.join(PRESETS)}, or a Preset of your own"
        ) from None


DOWNSAMPLING = 4
"""Patches per token along one side."""


def tokens_per_side(size_px: int) -> int:
    """Give the image tokens along one side of a square view."""
    return math.ceil(size_px // PATCH_PX / DOWNSAMPLING)


def global_token_count(side: int) -> int:
    """Count the tokens of a whole page: ``side`` rows with a newline each, and the separator."""
    return side * (side + 1) + 1


def crop_token_count(side: int, grid: Grid) -> int:
    """Count the tokens of the crops, laid out as one page with a newline to each row; none for ``(1, 1)``."""
    columns, rows = grid
    return side * rows * (side * columns + 1) if crop_count(grid) else 0


def image_token_count(preset: Preset, grid: Grid) -> int:
    """Count the ``<image>`` ids of one page in the prompt."""
    whole = global_token_count(tokens_per_side(preset.view_size))
    return whole + crop_token_count(tokens_per_side(preset.image_size), grid)


def feature_count(view_px: int, crop_px: int, grid: Grid) -> int:
    """Count the vectors that vision gives for a page seen at ``view_px`` with crops of ``crop_px``."""
    return global_token_count(_encoded_side(view_px)) + crop_token_count(_encoded_side(crop_px), grid)


def _encoded_side(size_px: int) -> int:
    """Follow one side through SAM: patches, then two convolutions of width 3, stride 2 and padding 1."""
    side = size_px // PATCH_PX
    for _ in range(2):
        side = (side - 1) // 2 + 1
    return side
