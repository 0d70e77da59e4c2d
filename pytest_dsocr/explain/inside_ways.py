"""Other ways to compute a step inside a block, from the subject's own tensors: windows, positions, attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, product
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.describe.added import added_keys
from pytest_dsocr.describe.by_head import OwnHeads, other_angles, other_heads
from pytest_dsocr.describe.core import AttentionCore, BiasOf, attended, cores
from pytest_dsocr.describe.description import ENOUGH
from pytest_dsocr.describe.functions import FORMATS, rounded
from pytest_dsocr.describe.keys import hidden_keys
from pytest_dsocr.describe.layout import pair_of
from pytest_dsocr.describe.measured import found_by, is_time_over
from pytest_dsocr.describe.pair import share, worst_of
from pytest_dsocr.describe.step import EngineCall, InnerStep
from pytest_dsocr.describe.tables import CHANGES, lines, squares
from pytest_dsocr.explain.catalogue.resampling import cubic, resampled
from pytest_dsocr.explain.mistake import Changes, model_of, tables_of
from pytest_dsocr.layers.attention import repeat_heads
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.layers.sam import SamAttention, SamBlock, join_windows, resize_grid, split_windows

if TYPE_CHECKING:
    from pytest_dsocr.explain.inside import InnerEngine

SLOPES = (-0.5, -0.75, -1.0, -1 / 3)
"""Slopes of cubic kernels that libraries use."""
Ways = Iterator[tuple[str, Tensor]]
"""Other tensors than the right one, with words."""


def ways_to_join(engine: InnerEngine, step: InnerStep, block: SamBlock) -> Ways:
    """Yield windows that are put back column by column."""
    out = step.block.outputs.get("attn.proj") if step.block else None
    if out is not None and step.expected.shape == engine.given.shape:
        height, width = engine.given.shape[1:3]
        rows, columns = -(-height // block.window), -(-width // block.window)
        turned = out.float().cpu().unflatten(0, (-1, columns, rows)).transpose(1, 2).flatten(0, 2)
        made = engine.given.float() + join_windows(turned, height, width)
        yield "the windows are put back column by column", made


def ways_to_pad(engine: InnerEngine, step: InnerStep, block: SamBlock) -> Ways:
    """Yield windows that are padded in other ways."""
    own = next((one for one in step.terms if one.tensor.shape == step.expected.shape), None)
    height, width = engine.given.shape[1:3]
    below, right = -height % block.window, -width % block.window
    if own is None or not (below or right) or step.expected.shape[1:3] != (block.window, block.window):
        return
    plane = join_windows(step.expected, height, width)
    for mode in ("replicate", "reflect", "circular"):
        padded = F.pad(plane.movedim(-1, 1), (0, right, 0, below), mode=mode).movedim(1, -1)
        yield f"the windows are padded by {mode}", split_windows(padded, block.window)
    first = block.norm1.bias.float().cpu().expand(1, height + below, width + right, -1).clone()
    first[:, :height, :width] = plane
    yield "the windows are padded with the biases of the norm: before the norm", split_windows(first, block.window)


def ways_to_place(engine: InnerEngine, step: InnerStep) -> Ways:
    """Yield the input of the blocks with positions that are read, resized or added in other ways."""
    positions, tables = engine.added(step), tables_of(engine.clean.engine, engine.name.stage)
    if positions is None or len(tables) != 1:
        return
    flat = tables[0].detach().float().cpu().flatten(0, -2)
    right = positions.reshape(-1, flat.shape[1])
    side, size = math.isqrt(len(flat)), math.isqrt(len(right))
    front, grid, bare = len(flat) - side**2, right[-(size**2) :], step.expected - positions
    first = flat[:front]

    def made(table: Tensor) -> Tensor:
        return bare + torch.cat([first, table.reshape(-1, flat.shape[1])]).view_as(bare)

    for words, change in CHANGES.items():
        yield f"the positions are {words}", made(change(grid.view(size, size, -1)))
        if front:
            yield f"the positions are {words}, the class token's too", bare + change(right[:, None]).view_as(bare)
    for words, table in squares(flat[front:].view(side, side, -1), size):
        yield f"the positions are {words}", made(table)
    planes = flat[front:].view(side, side, -1).permute(2, 0, 1)
    for slope, smooth in product(SLOPES, (False, True)):
        kernel = partial(cubic, a=slope)
        table = resampled(planes, (size, size), kernel, antialias=smooth).permute(1, 2, 0)
        how = f"{'with' if smooth else 'without'} antialias"
        yield f"the positions are resized by a cubic kernel of slope {slope:.2g} {how}", made(table)
    if front:
        yield "the class token's position comes last", bare + right.roll(-front, 0).view_as(bare)
        last = flat[:-front].view(side, side, -1)
        every = torch.cat([flat[-front:], resize_grid(last, size).reshape(-1, flat.shape[1])])
        yield "the table's last entry is the class token's position", bare + every.view_as(bare)
    if engine.given[0].numel() == bare.numel() - flat[:front].numel():
        rows = bare.reshape(-1, flat.shape[1]).clone()
        rows[front:] = engine.given[0].float().reshape(-1, flat.shape[1])
        yield "the stage's input is reshaped, and its axes are not exchanged", rows.view_as(bare) + positions
        rows[front:] = F.layer_norm(bare.reshape(-1, flat.shape[1])[front:], flat.shape[1:])
        yield "the features are normed without weights", rows.view_as(bare) + positions
    for name, dtype in FORMATS.items():
        rows = bare.reshape(-1, flat.shape[1]).clone()
        rows[front:] = rounded(rows[front:], dtype)
        yield f"the features are rounded to {name}", rows.view_as(bare) + positions
        yield f"the sum is rounded to {name}", rounded(step.expected, dtype)


def ways_to_attend(engine: InnerEngine, step: InnerStep, call: EngineCall) -> Ways:
    """Yield what is computed from the subject's own queries, keys and values in another way."""
    attention = engine.root.get_submodule(call.path.rpartition(".")[0])
    calls = list[tuple[Tensor, Tensor, Tensor, Tensor | None]]()
    with Changes() as changes:
        if hasattr(attention, "attend"):
            changes.set(attention, "attend", partial(_causal, attention.attend, calls))
        else:
            changes.set(F, "scaled_dot_product_attention", partial(_noted, F.scaled_dot_product_attention, calls))
        engine.again(step)
    if len(calls) != 1:
        return
    q, k, v, bias = calls[0]
    own, right = (_heads(one, q) for one in (step.actual, step.expected))
    at = worst_of(own, right)
    size = math.isqrt(q.shape[2])

    def bias_of(q: Tensor) -> Tensor | None:
        return attention.position_bias(q, size, size) if isinstance(attention, SamAttention) else bias

    def bias_of_heads() -> Tensor | None:
        return None if (added := bias_of(q[at : at + 1])) is None else added[0]

    heads = OwnHeads.of(q[at], k[at], v[at], bias_of_heads, own[at], right[at])

    def run(core: AttentionCore, row: int) -> Tensor:
        x, y, z = (one[row : row + 1] for one in (q, k, v))
        made = core(x, y, z, bias_of).float().cpu()
        others = torch.ones(q.shape[1], dtype=torch.bool)
        others[heads.wrong] = False
        return torch.where(others[:, None, None], right[row], made)

    ways = cores(is_causal=hasattr(attention, "attend"))
    of_tables = _relative(attention, size) if isinstance(attention, SamAttention) else iter(())
    of_keys = ((words, partial(attended, hidden=hidden)) for words, hidden in found_by(hidden_keys, heads))
    every: Iterator[tuple[str, AttentionCore]] = chain(
        of_tables,
        ways,
        of_keys,
        found_by(added_keys, heads),
        found_by(other_heads, heads),
        found_by(_of_angles, engine, heads),
    )
    where = f"in {heads.words}, " * bool(heads.words)
    for words, core in every:
        if is_time_over():
            return
        with suppress(RuntimeError):  # heads of other sizes
            pair = pair_of(*(one[at].flatten(0, 1) for one in (own, right)), channels_last=True)
            if share(pair, run(core, at)[0].flatten(0, 1)[None]) >= ENOUGH:
                rows = [run(core, row) for row in range(len(q))]
                yield f"{where}{words}", torch.cat(rows).transpose(1, 2).reshape(step.expected.shape)


def _of_angles(engine: InnerEngine, heads: OwnHeads) -> Iterator[tuple[str, AttentionCore]]:
    """Yield attention with other rotary positions, if the block has any."""
    rope = next(iter(model_of(engine.clean.engine).block_arguments(engine.name.stage, engine.given)), None)
    if isinstance(rope, Rope):
        yield from other_angles(heads, partial(_turned, rope.inverse_frequencies))


def _turned(frequencies: Tensor, x_NPD: Tensor, positions: Tensor) -> Tensor:
    return Rope(frequencies.to(x_NPD.device), positions[None], x_NPD.dtype).rotate(x_NPD[None])[0]


def _heads(tensor: Tensor, q_BNPD: Tensor) -> Tensor:
    """Return attention's output as ``[B, N, P, D]``."""
    views, heads, positions, _ = q_BNPD.shape
    return tensor.reshape(views, positions, heads, -1).transpose(1, 2)


def _noted(run: Any, calls: list[Any], q: Tensor, k: Tensor, v: Tensor, attn_mask: Any = None, **how: Any) -> Tensor:
    calls.append((q, k, v, attn_mask))
    out: Tensor = run(q, k, v, attn_mask=attn_mask, **how)
    return out


def _causal(run: Any, calls: list[Any], q: Tensor, k: Tensor, v: Tensor, lengths: Any) -> Tensor:
    at = torch.arange(k.shape[2], device=q.device)
    bias = torch.zeros(q.shape[2], k.shape[2], device=q.device).masked_fill(
        at > at[-q.shape[2] :, None], torch.finfo(q.dtype).min
    )
    calls.append((q, repeat_heads(k, q), repeat_heads(v, q), bias.to(q.dtype)[None, None]))
    out: Tensor = run(q, k, v, lengths)
    return out


def _relative(attention: Any, size: int) -> Iterator[tuple[str, AttentionCore]]:
    """Yield attention with other tables of relative positions, with words."""
    rows, columns, length = attention.rel_pos_h.detach(), attention.rel_pos_w.detach(), 2 * size - 1
    changed = {
        "the positions of rows are left out": (0 * rows, columns),
        "the positions of columns are left out": (rows, 0 * columns),
        "the positions of rows are used for columns too": (rows, rows),
        "the positions of columns are used for rows too": (columns, columns),
        **{
            f"the tables of positions are rounded to {name}": (rounded(rows, dtype), rounded(columns, dtype))
            for name, dtype in FORMATS.items()
        },
    }
    for (words, first), (_, second) in zip(lines(rows, length), lines(columns, length), strict=True):
        changed[f"the tables of relative positions are {words}"] = first, second
    for words, tables in changed.items():
        yield words, partial(_with_tables, attention, size, tables)
    for name, dtype in FORMATS.items():
        yield (
            f"the scores of rows and those of columns are each rounded to {name}",
            partial(_rounded_terms, attention, size, dtype),
        )


def _rounded_terms(attention: Any, size: int, dtype: torch.dtype, q: Tensor, k: Tensor, v: Tensor, _: BiasOf) -> Tensor:
    def bias_of(q: Tensor) -> Tensor:
        terms = list[Tensor]()
        for other in (attention.rel_pos_w, attention.rel_pos_h):
            with Changes() as changes:
                changes.weight(other, torch.zeros_like(other))
                terms.append(rounded(attention.position_bias(q, size, size), dtype))
        return terms[0] + terms[1]

    return attended(q, k, v, bias_of)


def _with_tables(
    attention: Any, size: int, tables: tuple[Tensor, Tensor], q: Tensor, k: Tensor, v: Tensor, _: BiasOf
) -> Tensor:
    with Changes() as changes:
        for own, table in zip((attention.rel_pos_h, attention.rel_pos_w), tables, strict=True):
            changes.weight(own, table)
        return attended(q, k, v, lambda q: attention.position_bias(q, size, size))
