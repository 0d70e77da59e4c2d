"""What-ifs of position tables that are resized: every mode, with and without antialias and aligned corners."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Resize = Callable[[Tensor, int], Tensor]


def _planes(table: Tensor, size: int, **how: Any) -> Tensor:
    dtype = how.pop("computed", torch.float32)
    planes = table.to(dtype).permute(2, 0, 1)[None]
    return F.interpolate(planes, size=(size, size), **how)[0].permute(1, 2, 0).to(table.dtype)


def _cut(table: Tensor, size: int, at: str) -> Tensor:
    first = {"front": 0, "middle": (len(table) - size) // 2, "end": len(table) - size}[at]
    cut = table[first : first + size, first : first + size]
    return cut if len(cut) == size else table.repeat(2, 2, 1)[:size, :size]


def _always(resize: Resize, table: Tensor, size: int) -> Tensor:
    return table if len(table) == size else resize(table, size)


def _by_scale(table: Tensor, size: int) -> Tensor:
    planes = table.float().permute(2, 0, 1)[None]
    factor = (size + 0.1) / len(table)
    out = F.interpolate(planes, scale_factor=factor, mode="bicubic", antialias=True)
    return out[0].permute(1, 2, 0)


def _strided(table: Tensor, size: int) -> Tensor:
    at = torch.arange(size) * len(table) // size
    return table[at][:, at]


def grid_variants() -> Iterator[tuple[str, str, Resize]]:
    """Yield a name, what is done to a square table in words, and the function that does it."""
    for mode in ("bicubic", "bilinear"):
        for antialias in (False, True):
            for corners in (False, True):
                if (mode, antialias, corners) == ("bicubic", True, False):
                    continue
                words = (
                    f"{mode}, {'with' if antialias else 'without'} antialias{', corners aligned' if corners else ''}"
                )
                how: dict[str, Any] = {"mode": mode, "antialias": antialias, "align_corners": corners}
                yield (
                    f"{mode}-{int(antialias)}{int(corners)}",
                    f"resized {words}",
                    partial(_always, partial(_planes, **how)),
                )
    for mode in ("nearest", "nearest-exact", "area"):
        yield mode, f"resized by {mode}", partial(_always, partial(_planes, mode=mode))
    for at in ("front", "middle", "end"):
        words = {"front": "first rows and columns", "middle": "middle", "end": "last rows and columns"}[at]
        yield f"cut-{at}", f"cut to its {words}, not resized", partial(_always, partial(_cut, at=at))
    yield "scale-factor", "resized by a scale factor of a little more than the size", partial(_always, _by_scale)
    yield "strided", "read in steps, not resized", partial(_always, _strided)
    bf16: dict[str, Any] = {"mode": "bicubic", "antialias": True, "computed": torch.bfloat16}
    yield "in-bfloat16", "resized in bfloat16", partial(_always, partial(_planes, **bf16))
    yield "turned", "with rows and columns exchanged", _turned
    yield "flipped", "with its rows in the opposite order", lambda table, size: _right(table, size).flip(0)
    yield "mirrored", "with its columns in the opposite order", lambda table, size: _right(table, size).flip(1)
    yield "missing", "left out", lambda table, size: torch.zeros_like(_right(table, size))
    yield "twice", "added twice", lambda table, size: 2 * _right(table, size)
    yield "half-bfloat16", "rounded to bfloat16", lambda table, size: _right(table, size).bfloat16().to(table.dtype)
    yield "half-float16", "rounded to float16", lambda table, size: _right(table, size).half().to(table.dtype)


def _right(table: Tensor, size: int) -> Tensor:
    return _always(partial(_planes, mode="bicubic", antialias=True, align_corners=False), table, size)


def _turned(table: Tensor, size: int) -> Tensor:
    return _right(table, size).transpose(0, 1)


def line_variants() -> Iterator[tuple[str, str, Resize]]:
    """Yield what may be done to a table of relative positions ``[L, C]`` that has another length."""
    yield "corners", "resized linearly with corners aligned", _line(mode="linear", align_corners=True)
    yield "nearest", "resized by nearest", _line(mode="nearest")
    yield "nearest-exact", "resized by nearest-exact", _line(mode="nearest-exact")
    yield "area", "resized by area", _line(mode="area")
    yield "antialias", "resized linearly with antialias", _antialiased("bilinear")
    yield "bicubic", "resized bicubic", _antialiased("bicubic", antialias=False)
    yield "bicubic-antialias", "resized bicubic with antialias", _antialiased("bicubic")
    yield "asymmetric", "resized linearly without half-pixel centres", _asymmetric
    yield "middle", "cut to its middle, not resized", lambda table, size: table[(len(table) - size) // 2 :][:size]
    yield "front", "cut to its beginning, not resized", lambda table, size: table[:size]
    yield "end", "cut to its end, not resized", lambda table, size: table[len(table) - size :]
    yield "in-bfloat16", "resized in bfloat16", _line(mode="linear", computed=torch.bfloat16)


def _line(**how: Any) -> Resize:
    dtype = how.pop("computed", torch.float32)

    def resize(table: Tensor, length: int) -> Tensor:
        if len(table) == length:
            return table
        return F.interpolate(table.to(dtype).T[None], size=length, **how)[0].T.to(table.dtype)

    return resize


def _asymmetric(table: Tensor, length: int) -> Tensor:
    if len(table) == length:
        return table
    at = torch.arange(length, device=table.device) * (len(table) / length)
    below = at.long().clamp_max(len(table) - 1)
    share = (at - below)[:, None]
    above = (below + 1).clamp_max(len(table) - 1)
    return (table.float()[below] * (1 - share) + table.float()[above] * share).to(table.dtype)


def _antialiased(mode: str, antialias: bool = True) -> Resize:
    def resize(table: Tensor, length: int) -> Tensor:
        if len(table) == length:
            return table
        planes = table.float().T[None, :, :, None]
        out = F.interpolate(planes, size=(length, 1), mode=mode, antialias=antialias)
        return out[0, :, :, 0].T.to(table.dtype)

    return resize
