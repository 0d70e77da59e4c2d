"""A decode step's operations as Triton kernels; each computes what its namesake in ``fast.plain`` does, up to rounding.

Needs the triton package. Shapes as in :mod:`~pytest_dsocr.engine.fast.weights`; B rows, S positions of room.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from triton import cdiv, next_power_of_2

from pytest_dsocr.engine.fast.kernels.attention import attend_kernel, join_kernel, qkv_kernel
from pytest_dsocr.engine.fast.kernels.experts import down_kernel, gate_up_kernel
from pytest_dsocr.engine.fast.kernels.products import project_kernel, score_kernel
from pytest_dsocr.engine.fast.slots import StepPlace
from pytest_dsocr.engine.fast.weights import FeedForward, LayerWeights, Norm


class Tile(NamedTuple):
    """Size of the part of a matrix that one program multiplies: rows, channels of each, and warps of threads."""

    rows: int
    width: int
    warps: int


TILES = {
    "qkv": Tile(8, 256, 4),
    "attend": Tile(64, 128, 2),
    "project": Tile(1, 256, 1),
    "router": Tile(1, 512, 2),
    "gate_up": Tile(4, 256, 4),
    "down": Tile(2, 256, 2),
    "head": Tile(16, 256, 4),
}
"""By kernel; ``attend`` has positions for rows."""
FEW_ROWS = 1024
"""Most rows of a router's matrix, which is spread over many programs; a matrix with more rows is ``lm_head``."""
JOINED_AT_ONCE = 16
"""Number of attention blocks that are joined at once."""


def qkv(x_BC: Tensor, layer: LayerWeights, place: StepPlace) -> Tensor:
    """Write the new token's keys and values into the cache; return its queries ``[B, N * D]``."""
    rows, width = x_BC.shape
    _, groups, room, channels = place.keys.shape
    heads = layer.qkv.shape[0] // channels - 2 * groups
    tile, half = TILES["qkv"], channels // 2
    pairs = min(tile.rows, next_power_of_2(half))
    queries = x_BC.new_empty(rows, heads * channels)
    where = place.positions, place.targets, place.cos, place.sin
    sizes = {**_vector(width), "N": heads, "G": groups, "D": channels, "PAIRS": pairs}
    tiled = {"WIDTH": _width(tile, width), "num_warps": tile.warps}
    qkv_kernel[((heads + 2 * groups) * cdiv(half, pairs), rows)](
        x_BC, *layer.before_attention, layer.qkv, *where, queries, place.keys, place.values, room, **sizes, **tiled
    )
    return queries


def attend(q_BH: Tensor, place: StepPlace, *, round_scores: bool) -> Tensor:
    """Attend from one token a row over its positions: ``[B, N * D]``."""
    rows, groups, room, channels = place.keys.shape
    tile, heads = TILES["attend"], q_BH.shape[1] // channels
    blocks = cdiv(room, tile.rows)
    partial = q_BH.new_empty(rows, heads, blocks, channels, dtype=torch.float32)
    parts = partial, torch.empty_like(partial[..., 0]), torch.empty_like(partial[..., 0])
    scale = 1 / math.sqrt(channels)
    sizes = {"N": heads, "D": channels, "D_UP": next_power_of_2(channels), "BLOCK": tile.rows, "num_warps": tile.warps}
    attend_kernel[(blocks, heads, rows)](
        q_BH, place.keys, place.values, place.lasts, *parts, room, scale, G=groups, ROUND=round_scores, **sizes
    )
    mixed = torch.empty_like(q_BH)
    join_kernel[(heads, rows)](*parts, place.lasts, mixed, blocks, AT_ONCE=JOINED_AT_ONCE, **sizes)
    return mixed


def project(inputs_BH: Tensor, weight_CH: Tensor, residual_BC: Tensor) -> Tensor:
    """Multiply and add to the residual: ``[B, C]``."""
    tile, (rows_of, channels) = TILES["project"], weight_CH.shape
    out = torch.empty_like(residual_BC)
    project_kernel[(cdiv(rows_of, tile.rows), len(out))](
        inputs_BH, weight_CH, residual_BC, out, rows_of, H=channels, **_tiled(tile, channels)
    )
    return out


def score(x_BC: Tensor, norm: Norm, weight_RC: Tensor, *, rounded: bool) -> Tensor:
    """Normalise and multiply: float32 ``[B, R]``, rounded to the weights' dtype before or computed in float32."""
    rows_of, channels = weight_RC.shape
    tile = TILES["router" if rows_of <= FEW_ROWS else "head"]
    scores = x_BC.new_empty(len(x_BC), rows_of, dtype=torch.float32)
    score_kernel[(cdiv(rows_of, tile.rows), len(x_BC))](
        x_BC, *norm, weight_RC, scores, rows_of, ROUND=rounded, **_vector(channels), **_tiled(tile, channels)
    )
    return scores


def gate_up(x_BC: Tensor, norm: Norm, scores_BE: Tensor | None, feed: FeedForward) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise, choose experts, and run the first half of them and of the shared ones.

    Gives their inner channels ``[B, K * I + J]``, the experts ``[B, K]`` int64 and their weights ``[B, K]`` float32.
    """
    tile, (rows, channels) = TILES["gate_up"], x_BC.shape
    inner = x_BC.new_empty(rows, feed.per_token * feed.inner + feed.shared_inner)
    chosen = x_BC.new_empty(rows, feed.per_token, dtype=torch.int64)
    shares = x_BC.new_empty(rows, feed.per_token, dtype=torch.float32)
    blocks = feed.per_token * cdiv(feed.inner, tile.rows) + cdiv(feed.shared_inner, tile.rows)
    scores = shares if scores_BE is None else scores_BE
    experts = {"E": len(feed.gate_up), "E_UP": next_power_of_2(len(feed.gate_up)), "NORMALISE": feed.normalise}
    sizes = {**_vector(channels), **_inside(feed), **experts, **_tiled(tile, channels)}
    gate_up_kernel[(blocks, rows)](
        x_BC, *norm, scores, feed.gate_up, feed.shared_gate_up, inner, chosen, shares, feed.scale, **sizes
    )
    return inner, chosen, shares


def down(inner: Tensor, chosen_BK: Tensor, weights_BK: Tensor, feed: FeedForward, residual_BC: Tensor) -> Tensor:
    """Run the second half of the experts, weigh and sum them in float32, add the shared ones and the residual."""
    tile, (rows, channels) = TILES["down"], residual_BC.shape
    out = torch.empty_like(residual_BC)
    sizes = {"C": channels, **_inside(feed), "SHARED_WIDTH": _width(tile, feed.shared_inner)}
    weights = feed.down, feed.shared_down
    down_kernel[(cdiv(channels, tile.rows), rows)](
        inner, chosen_BK, weights_BK, *weights, residual_BC, out, **sizes, **_tiled(tile, feed.inner)
    )
    return out


def _vector(channels: int) -> dict[str, int]:
    """Return the sizes of a token's vector."""
    return {"C": channels, "C_UP": next_power_of_2(channels)}


def _inside(feed: FeedForward) -> dict[str, int]:
    """Return the experts of a token, and the channels inside a routed one and inside the shared ones."""
    return {"K": feed.per_token, "I": feed.inner, "J": feed.shared_inner}


def _tiled(tile: Tile, channels: int) -> dict[str, int]:
    """Return the rows, channels and warps of one program."""
    return {"ROWS": tile.rows, "WIDTH": _width(tile, channels), "num_warps": tile.warps}


def _width(tile: Tile, channels: int) -> int:
    return min(tile.width, next_power_of_2(max(channels, 1)))
