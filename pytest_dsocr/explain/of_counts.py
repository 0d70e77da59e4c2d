"""What-ifs of how many of the prompt's tokens stand for an image."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pytest_dsocr.contract import inputs, presets
from pytest_dsocr.contract.presets import Grid, Preset
from pytest_dsocr.explain.family import Bench
from pytest_dsocr.explain.of_prompt import PROMPT

Counted = Callable[[Preset, Grid], int]


def _counts(on: Bench, count: Counted) -> None:
    on.changes.set(inputs, "image_token_count", count)


def _parts(preset: Preset, grid: Grid) -> tuple[int, int, int]:
    return presets.tokens_per_side(preset.view_size), presets.tokens_per_side(preset.image_size), grid[0] * grid[1]


def _with(preset: Preset, grid: Grid, page: Callable[[int], int], crops: Callable[[int, Grid], int]) -> int:
    whole, side, count = _parts(preset, grid)
    return page(whole) + (crops(side, grid) if count > 1 else 0)


def _right_page(side: int) -> int:
    return presets.global_token_count(side)


def _right_crops(side: int, grid: Grid) -> int:
    return presets.crop_token_count(side, grid)


COUNTS: dict[str, tuple[str, Counted]] = {
    "no-separator": (
        "no token counted for the separator",
        partial(_with, page=lambda s: s * (s + 1), crops=_right_crops),
    ),
    "no-newlines": (
        "no tokens counted for newlines",
        partial(_with, page=lambda s: s * s + 1, crops=lambda s, g: s * s * g[0] * g[1]),
    ),
    "no-page-newlines": (
        "no tokens counted for the page's newlines",
        partial(_with, page=lambda s: s * s + 1, crops=_right_crops),
    ),
    "no-crop-newlines": (
        "no tokens counted for the crops' newlines",
        partial(_with, page=_right_page, crops=lambda s, g: s * s * g[0] * g[1]),
    ),
    "each-crop": (
        "newlines counted for each crop by itself",
        partial(_with, page=_right_page, crops=lambda s, g: s * (s + 1) * g[0] * g[1]),
    ),
    "crop-separators": (
        "a separator counted for each crop",
        partial(_with, page=_right_page, crops=lambda s, g: (s * (s + 1) + 1) * g[0] * g[1]),
    ),
    "two-separators": (
        "a separator counted behind the crops as well",
        partial(_with, page=_right_page, crops=lambda s, g: _right_crops(s, g) + 1),
    ),
    "exchanged": (
        "newlines counted by columns, not by rows",
        partial(_with, page=_right_page, crops=lambda s, g: _right_crops(s, (g[1], g[0]))),
    ),
    "no-crops": ("no tokens counted for the crops", partial(_with, page=_right_page, crops=lambda s, g: 0)),
    "no-page": ("no tokens counted for the whole page", partial(_with, page=lambda s: 1, crops=_right_crops)),
    "base-crops": (
        "the crops' tokens counted by the page's size",
        lambda preset, grid: _with(
            preset, grid, _right_page, lambda s, g: _right_crops(presets.tokens_per_side(preset.base_size), g)
        ),
    ),
    "one": ("one token for the whole image", lambda preset, grid: 1),
    "one-crop": (
        "one crop counted among those of a page that is not cut",
        lambda preset, grid: (
            _right_page(_parts(preset, grid)[0])
            + (
                _parts(preset, grid)[1] * (_parts(preset, grid)[1] + 1)
                if grid == (1, 1)
                else _right_crops(_parts(preset, grid)[1], grid)
            )
        ),
    ),
    "base-page": (
        "the page's tokens counted by image_size in place of base_size",
        lambda preset, grid: _with(
            preset, grid, lambda s: _right_page(presets.tokens_per_side(preset.image_size)), _right_crops
        ),
    ),
}
for _key, (_words, _counted) in COUNTS.items():
    PROMPT.add(f"counts-{_key}", _words, partial(_counts, count=_counted))
