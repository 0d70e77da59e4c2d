"""Mistakes of attention, and of the tables of positions that both encoders of images resize."""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.explain.catalogue.attention import ATTENDED, LETTERS, attended
from pytest_dsocr.explain.catalogue.blocks import TensorChange, rounding
from pytest_dsocr.explain.catalogue.resampling import cubic, resampled, triangle
from pytest_dsocr.explain.mistake import Precision, Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row, inside, kin, runs
from pytest_dsocr.layers import sam
from pytest_dsocr.layers.sam import resize_grid, resize_line
from pytest_dsocr.models.deepseek_ocr import clip

ATTENTIONS = (sam.SamAttention, clip.ClipAttention)
Split = Callable[[Tensor, int], Tensor]
"""Split ``[B, P, 3 * C]`` into queries, keys and values ``[3, B, N, P, D]``, for a number of heads."""


def _split(fused: Tensor, heads: int, *, sizes: str = "3nd", order: tuple[int, ...] = (0, 1, 2)) -> Tensor:
    """Split ``[B, P, 3 * C]`` into ``[3, B, N, P, D]``; ``sizes`` names the parts of the last axis."""
    widths = {"3": 3, "n": heads, "d": -1}
    parts = fused.unflatten(-1, tuple(widths[one] for one in sizes))  # [B, P, *sizes]
    axes = (2 + sizes.index("3"), 0, 2 + sizes.index("n"), 1, 2 + sizes.index("d"))
    out: Tensor = parts.permute(axes)[list(order)]
    return out


def _not_moved(fused: Tensor, heads: int) -> Tensor:
    return torch.stack([part.reshape(len(fused), heads, fused.shape[1], -1) for part in fused.chunk(3, -1)])


def _merge(out: Tensor) -> Tensor:
    return out.transpose(1, 2).flatten(2)


def _run(module: Any, x: Tensor, *, split: Split = _split, merge: TensorChange = _merge, **how: Any) -> Tensor:
    """Compute an encoder's attention of ``[B, P, C]`` or ``[B, H, W, C]``."""
    is_sam = isinstance(module, sam.SamAttention)
    q, k, v = split((module.qkv if is_sam else module.qkv_proj)(x.flatten(1, -2)), module.heads)
    bias = module.position_bias(q, *x.shape[1:3]) if is_sam else 0.0
    merged = merge(attended(q, k, v, bias=bias, **how))
    out: Tensor = (module.proj if is_sam else module.out_proj)(merged)
    return out.view_as(x)


BY_HEAD: MistakeTable = {
    "by-head": ("queries, keys and values read head by head", {"split": partial(_split, sizes="n3d")})
}
VARIANTS: MistakeTable = {
    "scale-heads": (
        "scores scaled by the root of the number of heads",
        {"scale": lambda dim, heads: 1 / math.sqrt(heads)},
    ),
    "scale-times": ("scores multiplied by the root of a head's width", {"scale": lambda dim, heads: dim**0.5}),
    "causal": ("a causal mask in the attention", {"hidden": lambda q, k: k > q}),
    "reverse-causal": ("a causal mask the wrong way round in the attention", {"hidden": lambda q, k: k < q}),
    "first-hidden": (
        "a mask that hides the first position from the others",
        {"hidden": lambda q, k: (k == 0) & (q > 0)},
    ),
    "last-hidden": ("a mask that hides the last position", {"hidden": lambda q, k: k == k.max()}),
    "heads-not-merged": (
        "heads that are not moved back behind the positions",
        {"merge": lambda out: out.reshape(len(out), out.shape[2], -1)},
    ),
    "dims-merged-first": ("heads merged channel by channel", {"merge": lambda out: out.permute(0, 2, 3, 1).flatten(2)}),
    "innermost": ("queries, keys and values read channel by channel", {"split": partial(_split, sizes="nd3")}),
    "dims-first": ("heads read as the innermost axis", {"split": partial(_split, sizes="3dn")}),
    "heads-not-moved": ("heads that are not moved in front of the positions", {"split": _not_moved}),
}
HEADS: MistakeTable = {
    "heads-double": ("twice as many heads", {"split": lambda fused, heads: _split(fused, heads * 2)}),
    "heads-half": ("half as many heads", {"split": lambda fused, heads: _split(fused, heads // 2)}),
    "heads-one": ("one head", {"split": lambda fused, heads: _split(fused, 1)}),
}
"""Mistakes of CLIP only, since SAM's relative positions are as wide as a head."""
ORDERS = {"kqv": (1, 0, 2), "vkq": (2, 1, 0), "qvk": (0, 2, 1), "kvq": (2, 0, 1), "vqk": (1, 2, 0)}
"""Indices at which queries, keys and values are read, by the order that a port assumes."""


def add_attention(group: Group, name: str) -> None:
    """Add mistakes in the attention of each block of ``name``."""
    rows = BY_HEAD | ATTENDED | VARIANTS | (HEADS if group.stage == "clip" else {})
    attends = runs(inside(*ATTENTIONS), lambda module, how, x: _run(module, x, **how))
    group.rows("", rows, attends, words=f"{{}} in {name}")
    orders: MistakeTable = {
        letters: (", ".join(LETTERS[one] for one in letters), {"split": partial(_split, order=order)})
        for letters, order in ORDERS.items()
    }
    group.rows("order", orders, attends, words=f"{{}} in this order in {name}")
    for place, (letter, part) in enumerate(LETTERS.items()):
        if letter != "k":  # a bias of the keys adds as much to every score of a query
            words = f"the bias of the {part} left out in {name}"
            plant = partial(_part, place=place, change=torch.zeros_like, of="bias")
            group.add(f"no-bias-{letter}", words, plant, kind="no-bias")
        words = f"the weight of the {part} transposed in {name}"
        plant = partial(_part, place=place, change=lambda part: part.T, of="weight")
        group.add(f"transposed-{letter}", words, plant, kind="transposed")


def _part(on: Target, place: int, change: TensorChange, of: str) -> None:
    for module in on.modules(*ATTENTIONS):
        linear: nn.Linear = module.qkv if isinstance(module, sam.SamAttention) else module.qkv_proj
        parameter = getattr(linear, of)
        parts = list(parameter.data.chunk(3))
        parts[place] = change(parts[place])
        on.changes.weight(parameter, torch.cat(parts))


TableResize = Callable[[Tensor, int], Tensor]
"""Resize a table to a length or a side."""


def _unless_equal(resize: TableResize) -> TableResize:
    return lambda table, size: table if len(table) == size else resize(table, size)


def _planes(dtype: torch.dtype = torch.float32, **how: Any) -> TableResize:
    def resize(table: Tensor, size: int) -> Tensor:
        planes = table.to(dtype).permute(2, 0, 1)[None]
        return F.interpolate(planes, size=(size, size), **how)[0].permute(1, 2, 0).to(table.dtype)

    return _unless_equal(resize)


def _cut(table: Tensor, size: int, share: float) -> Tensor:
    first = int((len(table) - size) * share)
    cut = table[first : first + size, first : first + size]
    return cut if len(cut) == size else table.repeat(2, 2, 1)[:size, :size]


def _by_scale(table: Tensor, size: int) -> Tensor:
    planes, factor = table.float().permute(2, 0, 1)[None], (size + 0.1) / len(table)
    return F.interpolate(planes, scale_factor=factor, mode="bicubic", antialias=True)[0].permute(1, 2, 0)


def _strided(table: Tensor, size: int) -> Tensor:
    at = torch.arange(size) * len(table) // size
    return table[at][:, at]


def _restrided(table: Tensor, size: int, stride: Callable[[int, int], int]) -> Tensor:
    """Read a row of ``size`` entries every ``stride(side, size)`` entries of the flattened table."""
    flat, steps = table.flatten(0, 1), torch.arange(size)
    at = steps[:, None] * stride(len(table), size) + steps
    return flat[at.clamp_max(len(flat) - 1)]


def _channels_first(table: Tensor, size: int) -> Tensor:
    """Resize the channels and the rows of ``[C, H, W]``, as a function does that wants ``[H, W, C]``."""
    side, _, channels = table.shape
    height_of_channels = table.float().permute(1, 2, 0)[None]
    resized = F.interpolate(height_of_channels, size=(channels * size // side, size), mode="bicubic")[0]
    return resized.permute(2, 0, 1).reshape(size, size, channels).to(table.dtype)


STRIDES: dict[str, tuple[str, Callable[[int, int], int]]] = {
    "in-a-row": ("as the table's first entries in order", lambda side, size: size),
    "stride-newline": ("in rows of the view's side and one more", lambda side, size: size + 1),
    "stride-class": ("in rows of the table's side and one more", lambda side, size: side + 1),
}


def _by_kernel(table: Tensor, size: int, **how: Any) -> Tensor:
    return resampled(table.permute(2, 0, 1), (size, size), **how).permute(1, 2, 0)


def _beyond(table: Tensor, size: int, places: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Take the rows and columns ``places`` for a view larger than the table; resize it rightly for other views."""
    at = places(torch.arange(size), len(table))
    return table[at][:, at] if size > len(table) else resize_grid(table, size)


def _changed(table: Tensor, size: int, change: TensorChange) -> Tensor:
    return change(resize_grid(table, size))


CHANGED: MistakeTable = {
    "turned": ("with rows and columns exchanged", lambda table: table.transpose(0, 1)),
    "missing": ("left out", torch.zeros_like),
    "twice": ("added twice", lambda table: 2 * table),
    **kin("half", rounding("rounded to {}")),
}


def grid_variants() -> Iterator[tuple[str, Row]]:
    """Yield mistakes with a square table of positions. It is resized for crops only."""
    for mode, antialias, corners in ((m, a, c) for m in ("bicubic", "bilinear") for a in (False, True) for c in (0, 1)):
        if (mode, antialias, corners) == ("bicubic", True, 0):
            continue
        words = f"{mode}, {'with' if antialias else 'without'} antialias{', corners aligned' if corners else ''}"
        resize = _planes(mode=mode, antialias=antialias, align_corners=bool(corners))
        yield f"{mode}-{int(antialias)}{corners}", _of_crops(f"resized {words}", resize)
    for mode in ("nearest", "nearest-exact", "area"):
        yield mode, _of_crops(f"resized by {mode}", _planes(mode=mode))
    parts = {"front": "first rows and columns", "middle": "middle", "end": "last rows and columns"}
    for place, (key, part) in enumerate(parts.items()):
        yield (
            f"cut-{key}",
            _of_crops(f"cut to their {part}, not resized", _unless_equal(partial(_cut, share=place / 2))),
        )
    yield (
        "scale-factor",
        _of_crops("resized by a scale factor of a little more than the size", _unless_equal(_by_scale)),
    )
    yield "strided", _of_crops("read in steps, not resized", _unless_equal(_strided))
    for key, (words, stride) in STRIDES.items():
        resize = _unless_equal(partial(_restrided, stride=stride))
        yield key, _of_crops(f"taken {words}, not resized", resize)
    pillow = _unless_equal(partial(_by_kernel, kernel=partial(cubic, a=-0.5)))
    yield "no-antialias", _of_crops("resized by Pillow's bicubic kernel without antialias", pillow)
    words = "resized with channels first by a function that wants them last"
    yield "channels-first", _of_crops(words, _unless_equal(_channels_first))
    asymmetric = _unless_equal(partial(_by_kernel, kernel=triangle, half_pixel=False))
    yield "asymmetric", _of_crops("resized bilinear without half-pixel centres", asymmetric)
    narrow = _planes(torch.bfloat16, mode="bicubic", antialias=True)
    yield "in-bfloat16", _of_crops("resized in bfloat16", narrow, "bfloat16")
    for key, row in CHANGED.items():
        yield key, Row(*row)._replace(how=partial(_changed, change=row[1]))
    edge = partial(_beyond, places=lambda at, side: at.clamp(max=side - 1))
    yield "edge", _of_crops("of larger views repeated at the edge, not resized", edge)
    anew = partial(_beyond, places=lambda at, side: at % side)
    yield "anew", _of_crops("of larger views taken anew from the first row, not resized", anew)


def line_variants() -> Iterator[tuple[str, Row]]:
    """Yield mistakes in resizing a table of relative positions ``[L, C]``, which only crops need."""
    yield "corners", _of_crops("resized linearly with corners aligned", _line(mode="linear", align_corners=True))
    for mode in ("nearest", "nearest-exact", "area"):
        yield mode, _of_crops(f"resized by {mode}", _line(mode=mode))
    yield "antialias", _of_crops("resized linearly with antialias", _line(mode="bilinear", antialias=True))
    yield "bicubic", _of_crops("resized bicubic", _line(mode="bicubic", antialias=False))
    yield "bicubic-antialias", _of_crops("resized bicubic with antialias", _line(mode="bicubic", antialias=True))
    yield "asymmetric", _of_crops("resized linearly without half-pixel centres", _unless_equal(_asymmetric))
    for key, part, share in (("middle", "middle", 0.5), ("front", "beginning", 0.0), ("end", "end", 1.0)):
        yield key, _of_crops(f"cut to their {part}, not resized", partial(_cut_line, share=share))
    yield "in-bfloat16", _of_crops("resized in bfloat16", _line(torch.bfloat16, mode="linear"), "bfloat16")
    yield "clamped", _of_crops("clamped for larger views, not resized", _clamped)


def _of_crops(words: str, resize: TableResize, precision: Precision | None = None) -> Row:
    return Row(words, resize, precision, needs_crops=True)


def _line(dtype: torch.dtype = torch.float32, **how: Any) -> TableResize:
    def resize(table: Tensor, length: int) -> Tensor:
        lines = table.to(dtype).T[None]
        if how["mode"].startswith("bi"):
            return F.interpolate(lines[..., None], size=(length, 1), **how)[0, :, :, 0].T.to(table.dtype)
        return F.interpolate(lines, size=length, **how)[0].T.to(table.dtype)

    return _unless_equal(resize)


def _cut_line(table: Tensor, length: int, share: float) -> Tensor:
    return table[int((len(table) - length) * share) :][:length]


def _clamped(table: Tensor, length: int) -> Tensor:
    at = torch.arange(length) - length // 2 + len(table) // 2
    return table[at.clamp(0, len(table) - 1)] if length > len(table) else resize_line(table, length)


def _asymmetric(table: Tensor, length: int) -> Tensor:
    at = torch.arange(length, device=table.device) * (len(table) / length)
    below = at.long().clamp_max(len(table) - 1)
    share = (at - below)[:, None]
    above = (below + 1).clamp_max(len(table) - 1)
    return (table.float()[below] * (1 - share) + table.float()[above] * share).to(table.dtype)
