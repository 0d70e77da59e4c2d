"""Mistakes in the layout of vision's tokens in the prompt."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.contract.presets import Layout
from pytest_dsocr.engine.fusion import end_rows, mosaic, square
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.explain.catalogue.blocks import NOT_FINITE, rounding
from pytest_dsocr.explain.mistake import NEVER_FILLED, Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row
from pytest_dsocr.models.spec import FUSION

FusionGrid = tuple[int, int]

SIGNS = {**NOT_FINITE, Symptom.SHUFFLED: ("page-first", "crops-in-turn", "newlines-in-front", "separator-between")}


def fusion_mistakes(layout: Layout) -> Group:
    """Return the mistakes of a layout."""
    group = Group(FUSION, SIGNS)
    rows = LAYOUTS | (OF_MOSAIC if layout.mosaic else AS_MOSAIC) | (OF_NEWLINES if layout.newlines else WITH_NEWLINES)
    group.rows("", {key: Row(*row)._replace(needs_crops=True) for key, row in rows.items()}, lay_out)
    words = "vision of a page whose pixels sum to zero, where the vendor's gate lets none run"
    group.add("no-gate", words, _no_gate, needs_crops=True)
    return group


@dataclass(frozen=True)
class FusionLayout:
    """Layout of an image's tokens; the defaults are the vendor's."""

    order: str = "cps"
    """Order of crops, page and separator, each by its first letter."""
    given: Callable[[Tensor, FusionGrid], Tensor] = lambda crops, grid: crops
    """Changes the crops before they are joined."""
    crops: Callable[[Tensor, FusionGrid], Tensor] = mosaic
    """Joins the crops to one map."""
    page: Callable[[Tensor], Tensor] = square
    ends: str = "crops page"
    """Maps that have a newline after each row."""
    newline: Callable[[Tensor, Tensor], Tensor] = lambda newline, separator: newline
    separator: Callable[[Tensor, Tensor], Tensor] = lambda newline, separator: separator
    front: bool = False
    """Whether newlines come before their rows."""
    last: Callable[[Tensor], Tensor] = lambda tokens: tokens

    @classmethod
    def of(cls, layout: Layout) -> FusionLayout:
        """Return the vendor's layout."""
        crops = mosaic if layout.mosaic else lambda crops, grid: square(crops)
        return cls(crops=crops, ends="crops page" if layout.newlines else "")

    def fuse(self, crops: Tensor | None, page: Tensor, grid: FusionGrid, newline: Tensor, separator: Tensor) -> Tensor:
        """Return the tokens in order ``[tokens, C]``."""
        newline, separator = self.newline(newline, separator), self.separator(newline, separator)
        parts = {"p": self._ended(self.page(page), newline, "page"), "s": separator[None]}
        if crops is not None:
            parts["c"] = self._ended(self.crops(self.given(crops, grid), grid), newline, "crops")
        return self.last(torch.cat([parts[one] for one in self.order if one in parts]))

    def _ended(self, tokens: Tensor, newline: Tensor, which: str) -> Tensor:
        if which not in self.ends:
            return tokens.flatten(-3, -2) if tokens.dim() == 3 else tokens.flatten(0, -2)
        if self.front:
            return torch.cat([newline.expand(*tokens.shape[:-2], 1, -1), tokens], -2).flatten(0, -2)
        out = end_rows(tokens, newline)
        return out if out.dim() == 2 else out.flatten(0, -2)


def _exchanged_and_reshaped(crops: Tensor, grid: FusionGrid) -> Tensor:
    side = math.isqrt(crops.shape[-2])
    return mosaic(crops, grid[::-1]).reshape(grid[1] * side, grid[0] * side, -1)


def _by_column(crops: Tensor, grid: FusionGrid) -> Tensor:
    columns, rows = grid
    return crops[[row + rows * column for row in range(rows) for column in range(columns)]]


def _in_turn(crops: Tensor, grid: FusionGrid) -> Tensor:
    side = math.isqrt(crops.shape[-2])
    return crops.reshape(grid[1] * side, grid[0] * side, -1)


def _reread(rows: Tensor, *, written: int, read: int) -> Tensor:
    """Write ``[H, W, C]`` into zeros with a stride of ``W + written`` tokens, and read it with ``W + read``."""
    height, width, _ = rows.shape
    flat = F.pad(rows, (0, 0, 0, written)).flatten(0, 1)
    flat = F.pad(flat, (0, 0, 0, height * read))
    at = torch.arange(height)[:, None] * (width + read) + torch.arange(width)
    return flat[at.to(rows.device)]


def _strides() -> Iterator[tuple[str, Row]]:
    """Yield rows of a map that are read as if they had no newline, or one that they have not."""
    for key, with_or_without, written, read in (
        ("no-newline", "without the newline", 1, 0),
        ("newline", "with a newline that they do not have", 0, 1),
    ):
        words = f"read with the stride {with_or_without}"
        reread = partial(_reread, written=written, read=read)
        yield (
            f"crops-stride-{key}",
            Row(f"the crops' rows {words}", {"crops": lambda crops, grid, by=reread: by(mosaic(crops, grid))}),
        )
        yield f"page-stride-{key}", Row(f"the page's rows {words}", {"page": lambda page, by=reread: by(square(page))})


LAYOUTS: MistakeTable = {
    "page-first": ("the whole page in front of the crops", {"order": "pcs"}),
    "separator-between": ("the separator between crops and page", {"order": "csp"}),
    "separator-first": ("the separator in front", {"order": "scp"}),
    "no-separator": ("no separator", {"order": "cp"}),
    "separator-twice": ("a separator behind the crops as well", {"order": "csps"}),
    "page-separator-crops": ("the page, the separator, then the crops", {"order": "psc"}),
    "no-crops": ("no crops", {"order": "ps"}),
    "no-page": ("no whole page", {"order": "cs"}),
    "separator-both": ("a separator in front as well", {"order": "scps"}),
    "pushed-out": (
        "a token too many in front, the last one pushed out",
        {"last": lambda x: torch.cat([x[:1], x[:-1]])},
    ),
    "crops-zero": ("zeros in the place of the crops' tokens", {"given": lambda crops, grid: 0 * crops}),
    "first-dropped": ("vision's first token dropped", {"last": lambda x: x[1:]}),
    "separator-zero": ("a separator of zeros", {"separator": lambda newline, separator: 0 * separator}),
    "crops-by-column": ("crops taken column by column", {"given": _by_column}),
    "crop-turned": (
        "rows and columns exchanged inside of each crop",
        {"given": lambda crops, grid: square(crops).transpose(1, 2).flatten(1, 2)},
    ),
    "crops-backwards": ("crops in the opposite order", {"given": lambda crops, grid: crops.flip(0)}),
    "crop-repeated": (
        "the first crop in the place of every one",
        {"given": lambda crops, grid: crops[:1].expand_as(crops)},
    ),
    "page-turned": ("the page's tokens read column by column", {"page": lambda page: square(page).transpose(0, 1)}),
    **rounding("vision's tokens rounded to {}", lambda change: {"last": change}),
    "one-off": ("vision's tokens one place off", {"last": lambda x: x.roll(1, 0)}),
    "one-off-other": ("vision's tokens one place too early", {"last": lambda x: x.roll(-1, 0)}),
    "scaled": ("vision's tokens multiplied by the root of their width", {"last": lambda x: x * x.shape[-1] ** 0.5}),
}
OF_NEWLINES: MistakeTable = {
    "no-newlines": ("no newlines", {"ends": ""}),
    "no-crop-newlines": ("no newlines in the crops", {"ends": "page"}),
    "no-page-newlines": ("no newlines in the page", {"ends": "crops"}),
    "newlines-in-front": ("newlines in front of their rows", {"front": True}),
    "newline-zero": ("newlines of zeros", {"newline": lambda newline, separator: 0 * newline}),
    "newline-separator": ("the separator in the place of newlines", {"newline": lambda newline, separator: separator}),
    "separator-newline": ("a newline in the place of the separator", {"separator": lambda newline, separator: newline}),
    NEVER_FILLED: ("newlines left as they were allocated", {"newline": lambda newline, separator: newline * torch.nan}),
    "exchanged": (
        "newline and separator exchanged",
        {"newline": lambda newline, separator: separator, "separator": lambda newline, separator: newline},
    ),
    "each-crop-ended": ("newlines behind the rows of each crop", {"crops": lambda crops, grid: square(crops)}),
    **dict(_strides()),
}
"""Mistakes in a layout with newlines."""
OF_MOSAIC: MistakeTable = {
    "grid-exchanged": (
        "columns and rows of the crops exchanged",
        {"crops": lambda crops, grid: mosaic(crops, grid[::-1])},
    ),
    "grid-exchanged-reshaped": (
        "crops laid out by columns and rows exchanged, then reshaped to the page's map",
        {"crops": _exchanged_and_reshaped},
    ),
    "crops-in-turn": (
        "each crop's tokens behind those of the one before, not laid out as the page",
        {"crops": _in_turn},
    ),
    "mosaic-turned": (
        "the crops' mosaic read column by column",
        {"crops": lambda crops, grid: mosaic(crops, grid).transpose(0, 1)},
    ),
}
"""Mistakes in a layout with a mosaic of crops."""
AS_MOSAIC: MistakeTable = {
    "mosaic": ("the crops laid out as their page, where one should follow another", {"crops": mosaic})
}
WITH_NEWLINES: MistakeTable = {
    "separator-of-256": (
        "no separator behind a page of 144 tokens alone",
        {"last": lambda x: x[:-1] if len(x) == 145 else x},
    ),
    "newlines-separator": ("the separator behind each row, where no newline belongs", {"ends": "crops page"}),
    "newlines-zero": (
        "zeros behind each row, where no newline belongs",
        {"ends": "crops page", "newline": lambda newline, separator: 0 * separator},
    ),
}


def lay_out(on: Target, how: Mapping[str, Any]) -> None:
    """Replace the vendor's layout by one with changes."""
    own = on.engine.family.layout
    changed = replace(FusionLayout.of(own), **how)

    def vision_fusion(self: Pipeline[Any], crops: Tensor | None, page: Tensor, grid: FusionGrid) -> Tensor:
        newline = self.model.newline if own.newlines else self.model.separator
        with self.running(FUSION):
            return changed.fuse(crops, page[0], grid, newline, self.model.separator)

    on.changes.set(Pipeline, "vision_fusion", vision_fusion)


def _no_gate(on: Target) -> None:
    from pytest_dsocr.contract.inputs import Inputs

    on.changes.set(Inputs, "has_vision", property(lambda inputs: inputs.prompt_tokens != 1))
