"""A table of positions that was resized, cut or read in another way.

Shapes: H x H entries of a square table, L entries of a line, C channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

MODES: Mapping[str, Mapping[str, Any]] = {
    "nearest": {"mode": "nearest"},
    "nearest-exact": {"mode": "nearest-exact"},
    "area": {"mode": "area"},
    **{
        f"{mode}, {'with' if smooth else 'without'} antialias{', corners aligned' if corners else ''}": {
            "mode": mode,
            "antialias": smooth,
            "align_corners": corners,
        }
        for mode in ("bilinear", "bicubic")
        for smooth in (False, True)
        for corners in (False, True)
    },
}
"""Ways to resize, as arguments of :func:`torch.nn.functional.interpolate`."""


def squares(table_HHC: Tensor, size: int) -> Iterator[tuple[str, Tensor]]:
    """Yield square tables ``[size, size, C]`` made of another one, with words."""
    side = len(table_HHC)
    if side != size:
        for words, how in MODES.items():
            yield f"resized {words}", _resized(table_HHC, size, size, how)
        planes = table_HHC.float().permute(2, 0, 1)[None]
        for words, factor in (
            ("a scale factor of", size / side),
            ("a scale factor a little above", (size + 0.1) / side),
        ):
            for smooth in (True, False):
                with_it = "with" if smooth else "without"
                made = F.interpolate(planes, scale_factor=factor, mode="bicubic", antialias=smooth)[0].permute(1, 2, 0)
                yield f"resized bicubic {with_it} antialias by {words} {size / side:.3g}", made[:size, :size]
        for words, line in _lines(side, size):
            yield f"{words}, not resized", table_HHC[line][:, line]
        made = _linear(_linear(table_HHC, size, 0).transpose(0, 1), size, 0).transpose(0, 1)
        yield "resized bilinear without half-pixel centres", made
        flat, steps = table_HHC.flatten(0, 1), torch.arange(size, device=table_HHC.device)
        for stride in dict.fromkeys((size, size + 1, side + 1)):
            at = (steps[:, None] * stride + steps).clamp_max(len(flat) - 1)
            yield f"read from the flat table in rows of {stride} entries, not resized", flat[at]


def lines(table_LC: Tensor, length: int) -> Iterator[tuple[str, Tensor]]:
    """Yield tables ``[length, C]`` made of another one, with words."""
    if len(table_LC) != length:
        for words, how in MODES.items():
            yield f"resized {words}", _resized(table_LC[:, None], length, 1, how)[:, 0]
        yield "resized linearly without half-pixel centres", _linear(table_LC, length, 0)
        for words, line in _lines(len(table_LC), length):
            yield f"{words}, not resized", table_LC[line]


def _resized(table: Tensor, height: int, width: int, how: Mapping[str, Any]) -> Tensor:
    planes = table.float().permute(2, 0, 1)[None]
    return F.interpolate(planes, size=(height, width), **how)[0].permute(1, 2, 0)


def _linear(table: Tensor, length: int, half: float) -> Tensor:
    at = (torch.arange(length, device=table.device) + half) * (len(table) / length) - half
    below = at.long().clamp_max(len(table) - 1)
    part = (at - below).view(-1, *(1 for _ in table.shape[1:]))
    above = (below + 1).clamp_max(len(table) - 1)
    return table.float()[below] * (1 - part) + table.float()[above] * part


def _lines(side: int, size: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the entries of one axis that are taken, if the table is not resized."""
    at = torch.arange(size)
    if size < side:
        for words, first in (("first entries", 0), ("middle", (side - size) // 2), ("last entries", side - size)):
            yield f"cut to their {words}", at + first
    else:
        yield "repeated from the start", at % side
        yield "repeated at the edge", at.clamp_max(side - 1)
    yield "read in steps", at * side // size


CHANGES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "left out": torch.zeros_like,
    "added twice": lambda table: 2 * table,
    "added with rows and columns exchanged": lambda table: table.transpose(0, 1),
    "read backwards": lambda table: table.flip(0),
    "rounded to bfloat16": lambda table: table.bfloat16().to(table.dtype),
    "rounded to float16": lambda table: table.half().to(table.dtype),
}
"""Changes of a square table that has the right size."""
