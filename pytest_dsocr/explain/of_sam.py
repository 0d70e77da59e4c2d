"""What-ifs of SAM: patches, positions, windows, relative positions, and the neck."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import sam
from pytest_dsocr.explain.family import Bench, Family
from pytest_dsocr.explain.flows import add_flows
from pytest_dsocr.explain.norms import add_norms
from pytest_dsocr.explain.numbers import DTYPES, add_activations, add_linears, add_numbers
from pytest_dsocr.explain.positions import Resize, line_variants
from pytest_dsocr.explain.vision_attention import add_attention

SAM = Family("sam")
"""The likeliest first."""


add_activations(SAM, "SAM", "erf", lambda act, mlp, x: mlp.lin2(act(mlp.lin1(x))), sam.Mlp)
add_linears(SAM, "SAM", ("attn.qkv", "attn.proj", "mlp.lin1", "mlp.lin2"), ("attn.proj",))


def _line(on: Bench, resize: Resize) -> None:
    on.changes.set(sam, "resize_line", resize)


for _key, _words, _resize in line_variants():
    SAM.add(f"relative-{_key}", f"SAM's tables of relative positions {_words}", partial(_line, resize=_resize))


def _relative(rows: Callable[[Any, int], Tensor], columns: Callable[[Any, int], Tensor]) -> Callable[..., None]:
    def plant(on: Bench) -> None:
        for module in on.modules(sam.Attention):
            on.changes.set(module, "_position_bias", partial(_bias, module, rows, columns))

    return plant


def _bias(
    module: Any,
    rows: Callable[[Any, int], Tensor],
    columns: Callable[[Any, int], Tensor],
    q: Tensor,
    height: int,
    width: int,
) -> Tensor:
    q_BHWD = q.reshape(-1, height, width, q.shape[-1])
    by_row = torch.einsum("bhwd,hkd->bhwk", q_BHWD, rows(module, height)).reshape(*q.shape[:3], height, 1)
    by_column = torch.einsum("bhwd,wkd->bhwk", q_BHWD, columns(module, width)).reshape(*q.shape[:3], 1, width)
    return (by_row + by_column).flatten(3)


def _of_rows(module: Any, size: int) -> Tensor:
    return sam.relative_table(module.rel_pos_h, size)


def _of_columns(module: Any, size: int) -> Tensor:
    return sam.relative_table(module.rel_pos_w, size)


RELATIVE = {
    "relative-missing": (
        "no relative positions",
        _relative(lambda m, s: 0 * _of_rows(m, s), lambda m, s: 0 * _of_columns(m, s)),
    ),
    "relative-exchanged": ("the relative positions of rows and columns exchanged", _relative(_of_columns, _of_rows)),
    "relative-no-rows": ("no relative positions of rows", _relative(lambda m, s: 0 * _of_rows(m, s), _of_columns)),
    "relative-no-columns": (
        "no relative positions of columns",
        _relative(_of_rows, lambda m, s: 0 * _of_columns(m, s)),
    ),
    "relative-backwards": (
        "relative positions of the key's place less the query's, not the other way",
        _relative(lambda m, s: _of_rows(m, s).transpose(0, 1), lambda m, s: _of_columns(m, s).transpose(0, 1)),
    ),
    "relative-rows-twice": ("the relative positions of rows for columns as well", _relative(_of_rows, _of_rows)),
}


def _scaled_query(on: Bench) -> None:
    for module in on.modules(sam.Attention):
        on.changes.set(module, "_position_bias", partial(_of_scaled, module, module._position_bias))


def _of_scaled(module: Any, bias: Callable[..., Tensor], q: Tensor, height: int, width: int) -> Tensor:
    return bias(q / q.shape[-1] ** 0.5, height, width)


SAM.add("relative-of-scaled", "SAM's relative positions taken of the scaled query", _scaled_query)
for _key, (_words, _plant) in RELATIVE.items():
    SAM.add(_key, f"{_words} in SAM", _plant)


def _half_bias(on: Bench, dtype: torch.dtype) -> None:
    for module in on.modules(sam.Attention):
        on.changes.set(module, "_position_bias", partial(_in_half, module._position_bias, dtype))


def _in_half(bias: Callable[..., Tensor], dtype: torch.dtype, q: Tensor, height: int, width: int) -> Tensor:
    return bias(q, height, width).to(dtype).to(q.dtype)


for _key, _dtype in DTYPES.items():
    _words = f"SAM's bias of relative positions rounded to {_key}"
    SAM.add(f"relative-{_key}", _words, partial(_half_bias, dtype=_dtype))


def _windows(on: Bench, size: int) -> None:
    for block in on.modules(sam.Block):
        if block.window:
            on.changes.set(block, "window", size)


@SAM("global-everywhere", "a block of SAM attending to the whole view that should keep to its windows", "wide")
def _all_global(on: Bench) -> None:
    _windows(on, 0)


@SAM("windows-everywhere", "a block of SAM keeping to windows that should attend to the whole view", "wide")
def _all_windows(on: Bench) -> None:
    for block in on.modules(sam.Block):
        on.changes.set(block, "window", 14)


for _size in (7, 8, 10, 12, 16):
    SAM.add(f"windows-{_size}", f"windows of {_size} in SAM", partial(_windows, size=_size), "wide")


def _padded(mode: str, before: bool) -> Callable[[Tensor, int], Tensor]:
    def split(x_BHWC: Tensor, window: int) -> Tensor:
        height, width = (-side % window for side in x_BHWC.shape[1:3])
        sides = (width, 0, height, 0) if before else (0, width, 0, height)
        if mode == "middle":
            sides = (width // 2, width - width // 2, height // 2, height - height // 2)
        planes = x_BHWC.permute(0, 3, 1, 2)
        out = F.pad(planes, sides) if mode in ("zeros", "middle") else F.pad(planes, sides, mode=mode)
        return _cut(out.permute(0, 2, 3, 1), window)

    return split


def _cut(x: Tensor, window: int) -> Tensor:
    batch, height, width, channels = x.shape
    x = x.reshape(batch, height // window, window, width // window, window, channels).transpose(2, 3)
    return x.reshape(-1, window, window, channels)


def _pads(on: Bench, mode: str, before: bool) -> None:
    on.changes.set(sam, "split_windows", _padded(mode, before))
    if before or mode == "middle":
        kept = sam.join_windows
        on.changes.set(
            sam,
            "join_windows",
            lambda windows, height, width: _joined(kept, windows, height, width, mode),
        )


def _joined(join: Callable[..., Tensor], windows: Tensor, height: int, width: int, mode: str) -> Tensor:
    window = windows.shape[1]
    full = [-(-side // window) * window for side in (height, width)]
    whole = join(windows, *full)
    first = [(have - want) // (2 if mode == "middle" else 1) for have, want in zip(full, (height, width), strict=True)]
    return whole[:, first[0] : first[0] + height, first[1] : first[1] + width]


SAM.add("pad-before", "SAM's windows padded in front, not behind", partial(_pads, mode="zeros", before=True), "wide")
SAM.add("pad-middle", "SAM's windows padded on both sides", partial(_pads, mode="middle", before=False), "wide")
SAM.add(
    "pad-replicate",
    "SAM's windows padded with the last row and column",
    partial(_pads, mode="replicate", before=False),
    "wide",
)
SAM.add("pad-reflect", "SAM's windows padded by reflection", partial(_pads, mode="reflect", before=False), "wide")
SAM.add(
    "pad-circular", "SAM's windows padded from the other end", partial(_pads, mode="circular", before=False), "wide"
)


@SAM("pad-in-front-of-norm", "SAM's windows padded in front of the norm, which makes of zeros its biases", "wide")
def _norm_of_padding(on: Bench) -> None:
    for block in on.modules(sam.Block):
        if block.window:
            norm = type(block.norm1).forward.__get__(block.norm1)
            on.changes.forward(block.norm1, lambda x: x)
            on.changes.around(block.attn, partial(_normed_first, norm))


def _normed_first(norm: Callable[[Tensor], Tensor], run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return run(norm(x))


@SAM("pad-hidden", "SAM's padding hidden from attention", "wide")
def _padding_hidden(on: Bench) -> None:
    split = sam.split_windows

    def marked(x: Tensor, window: int) -> Tensor:
        marks = torch.ones_like(x[..., :1])
        state["hidden"] = split(marks, window).flatten(1, 2)[..., 0] == 0
        return split(x, window)

    def biased(bias: Callable[..., Tensor], q: Tensor, height: int, width: int) -> Tensor:
        return bias(q, height, width).masked_fill(state["hidden"][:, None, None, :], torch.finfo(q.dtype).min)

    state: dict[str, Tensor] = {}
    on.changes.set(sam, "split_windows", marked)
    for block in on.modules(sam.Block):
        if block.window:
            on.changes.set(block.attn, "_position_bias", partial(biased, block.attn._position_bias))


def _rolled(run: Callable[[Tensor], Tensor], by: int, x: Tensor) -> Tensor:
    return run(x.roll((-by, -by), (1, 2))).roll((by, by), (1, 2))


def _shifted(on: Bench, by: int) -> None:
    for block in on.modules(sam.Block):
        if block.window:
            run = block._attend
            on.changes.set(block, "_attend", partial(_rolled, run, by))


SAM.add("windows-shifted", "SAM's windows shifted by half of their size", partial(_shifted, by=7), "wide")


@SAM("windows-by-column", "SAM's windows put back column by column", "wide")
def _by_column(on: Bench) -> None:
    def join(windows: Tensor, height: int, width: int) -> Tensor:
        window, channels = windows.shape[1], windows.shape[3]
        rows, columns = -(-height // window), -(-width // window)
        x = windows.view(-1, columns, rows, window, window, channels).permute(0, 2, 3, 1, 4, 5)
        return x.reshape(-1, rows * window, columns * window, channels)[:, :height, :width]

    on.changes.set(sam, "join_windows", join)


add_norms(SAM, "SAM", 1e-6, (1e-5, 1e-12, 1e-8, 1e-3))
add_attention(SAM, "SAM")
add_flows(SAM, "SAM")
add_numbers(SAM, "SAM")
