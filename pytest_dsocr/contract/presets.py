"""Presets of a page, the grid of crops that it is cut into, and its number of tokens in the prompt.

The vendor's code counts an image's tokens in the prompt; the encoders determine the number of vision features. If
the two numbers differ, vision is scattered over the wrong positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypedDict

from pytest_dsocr.base.errors import DsocrError

PATCH_PX = 16
"""Side of the square of pixels that SAM turns into one patch; a view must have at least one patch."""
DOWNSAMPLING = 4
"""Patches per token along one side."""

Grid = tuple[int, int]
"""Columns and rows of crops."""


@dataclass(frozen=True)
class Tiling:
    """Rules by which a model cuts pages."""

    crop_px: int
    """Side of a crop; a page that fits into one is not cut."""
    least: int
    """The fewest crops of a page that is cut."""
    most: int
    squashed_up_to_px: int
    """Side of a view up to which a page without crops is squashed into it, and not padded."""
    view_tokens: tuple[int, ...] = ()
    """Numbers of tokens that a view may have; empty if the encoder takes views of any size."""
    lossy_px: int | None = None
    """The ``image_size`` of the vendor's ``infer`` that, with crops, has fewer image tokens than features. The vendor
    drops the last features without an error."""

    @property
    def grids(self) -> tuple[Grid, ...]:
        """The grids in the order in which the vendor tries them, fewest crops first.

        Its order among equal numbers of crops is a set's, which no page's choice depends on.
        """
        return candidates(self.most, self.least)


@dataclass(frozen=True)
class Layout:
    """Order of an image's tokens in the prompt: crops, page, separator; ``engine.fusion.fuse`` implements it."""

    newlines: bool
    """Whether a newline ends each row."""
    mosaic: bool
    """Whether the crops are laid out as on their page; otherwise they follow one another."""

    def page_tokens(self, side: int) -> int:
        """Count the tokens of a whole page of ``side`` rows, and the separator."""
        return side * (side + self.newlines) + 1

    def crop_tokens(self, side: int, grid: Grid) -> int:
        """Count the tokens of the crops, ``side`` rows each; none for ``(1, 1)``."""
        columns, rows = grid
        if not crop_count(grid):
            return 0
        return side * rows * (side * columns + self.newlines * (1 if self.mosaic else columns))


class PresetSizes(TypedDict):
    """Sizes that a user may set, by the names of the vendor's ``infer``."""

    name: str
    base_size: int
    image_size: int
    crop: bool


@dataclass(frozen=True)
class Preset:
    """Sizes in pixels, under the names of the vendor's ``infer``, and whether large pages are cut into crops.

    With ``crop`` the whole page is seen at ``base_size``, and ``image_size`` determines the tokens of a crop. The
    crop's width is the tiling's, whatever ``image_size`` is. Without ``crop`` the whole page is seen at ``image_size``.
    """

    name: str
    base_size: int
    image_size: int
    crop: bool
    tiling: Tiling = field(repr=False)
    layout: Layout = field(repr=False)

    def __post_init__(self) -> None:
        for size_name, size_px in (("base_size", self.base_size), ("image_size", self.image_size)):
            if size_px < PATCH_PX:
                raise DsocrError(
                    f"preset {self.name!r} has {size_name}={size_px}, which holds no image token; "
                    f"give at least {PATCH_PX} pixels"
                )

    @property
    def is_squashed(self) -> bool:
        """Whether the whole page is squashed into its view, and not padded: without crops, in a small view."""
        return not self.crop and self.view_size <= self.tiling.squashed_up_to_px

    @property
    def is_lossy(self) -> bool:
        """Whether the prompt has too few image tokens for pages with crops, as in the vendor's own default."""
        return self.crop and self.image_size == self.tiling.lossy_px

    @property
    def view_size(self) -> int:
        """Side of the square view of the whole page, in pixels."""
        return self.base_size if self.crop else self.image_size

    @property
    def sizes(self) -> PresetSizes:
        """Sizes that a user may set."""
        return {"name": self.name, "base_size": self.base_size, "image_size": self.image_size, "crop": self.crop}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Preset:
        """Read the output of ``asdict``."""
        return cls(**{**value, "tiling": Tiling(**value["tiling"]), "layout": Layout(**value["layout"])})

    def grid(self, width_px: int, height_px: int) -> Grid:
        """Return the columns and rows that a page is cut into; ``(1, 1)`` without crops."""
        return crop_grid(width_px, height_px, self.tiling) if self.crop else (1, 1)


def get_preset(name_or_preset: str | Preset, presets: Mapping[str, Preset]) -> Preset:
    """Return the preset with a name, in any case; a ``Preset`` is returned unchanged.

    Raises:
        DsocrError: if there is none with that name.
    """
    if isinstance(name_or_preset, Preset):
        return name_or_preset
    try:
        return presets[name_or_preset.lower()]
    except KeyError:
        raise DsocrError(
            f"there is no preset {name_or_preset!r}; give one of {', '.join(presets)}, or a Preset of your own"
        ) from None


def check_view(preset: Preset) -> Preset:
    """Return the preset, if the encoder takes its view of the page; raise ``DsocrError`` if it does not."""
    known, found = preset.tiling.view_tokens, encoded_side(preset.view_size) ** 2
    if known and found not in known:
        sides = " or ".join(str(math.isqrt(tokens) * DOWNSAMPLING * PATCH_PX) for tokens in known)
        raise DsocrError(
            f"preset {preset.name!r} views the page at {preset.view_size} px, which is {found} image tokens; the "
            f"encoder takes {' or '.join(map(str, known))}: give a view of {sides} pixels"
        )
    return preset


@cache
def candidates(most: int, least: int = 2) -> tuple[Grid, ...]:
    """Return the grids of ``least`` to ``most`` crops, fewest first."""
    sides = range(1, most + 1)
    grids = ((columns, rows) for columns in sides for rows in sides if least <= columns * rows <= most)
    return tuple(sorted(grids, key=math.prod))


def crop_count(grid: Grid) -> int:
    """Count the crops of ``grid``: none for ``(1, 1)``, which means that the page is not cut."""
    columns, rows = grid
    return 0 if columns * rows == 1 else columns * rows


def crop_grid(width_px: int, height_px: int, tiling: Tiling, grids: Sequence[Grid] = ()) -> Grid:
    """Return the columns and rows that a page of this size is cut into; ``(1, 1)`` is no cut.

    It is the grid whose aspect ratio is nearest to the page's. Of equally near grids, a larger one is used if the page
    has more than half of its pixels.

    Args:
        width_px: width of the page.
        height_px: height of the page.
        tiling: how the model cuts pages.
        grids: grids to choose from, if not the model's.

    Raises:
        DsocrError: if the page has no pixels.
    """
    if width_px < 1 or height_px < 1:
        raise DsocrError(f"a page of {width_px} x {height_px} has no pixels; give one that has some")
    if width_px <= tiling.crop_px and height_px <= tiling.crop_px:
        return 1, 1
    grids = grids or tiling.grids
    best, least = grids[0], math.inf
    for grid in grids:
        columns, rows = grid
        distance = abs(width_px / height_px - columns / rows)
        more_than_half = width_px * height_px > 0.5 * tiling.crop_px**2 * columns * rows
        if distance < least or (distance == least and more_than_half):
            best, least = grid, distance
    return best


def tokens_per_side(size_px: int) -> int:
    """Return the image tokens along one side of a square view, as the vendor's code counts them."""
    return math.ceil(size_px // PATCH_PX / DOWNSAMPLING)


def image_token_count(preset: Preset, grid: Grid) -> int:
    """Count the ``<image>`` ids of one page in the prompt."""
    whole, crop = tokens_per_side(preset.view_size), tokens_per_side(preset.image_size)
    return preset.layout.page_tokens(whole) + preset.layout.crop_tokens(crop, grid)


def feature_count(view_px: int, crop_px: int, grid: Grid, layout: Layout) -> int:
    """Count the vectors that vision returns for a page seen at ``view_px`` with crops of ``crop_px``."""
    return layout.page_tokens(encoded_side(view_px)) + layout.crop_tokens(encoded_side(crop_px), grid)


def encoded_side(size_px: int, patch_px: int = PATCH_PX) -> int:
    """Follow one side through SAM: patches, then two convolutions of width 3, stride 2 and padding 1."""
    side = size_px // patch_px
    for _ in range(2):
        side = halved(side)
    return side


def halved(side: int) -> int:
    """Return the side of a view after a convolution of width 3, stride 2 and padding 1."""
    return (side - 1) // 2 + 1
