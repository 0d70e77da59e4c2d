"""A block of an encoder or of the decoder taken apart, to compute some of its rows in another way.

Shapes: N heads, T tokens, R rows that are computed, D channels of a head, C channels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.describe.partly import PartlyTurned
from pytest_dsocr.layers.experts import GatedMlp, MixtureOfExperts

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Variant:
    """A way to compute a block; the default is the right one."""

    kind: str = ""
    text: str = ""
    query_shift: float = 0.0
    """Number that is added to the positions of queries, not of keys."""
    position_factor: float = 1.0
    base_factor: float = 1.0
    """Factor of the base of the rotary frequencies."""
    rotation: str = "halves"
    """Pairs of channels that are rotated: ``halves``, ``neighbours``, ``backwards``, or ``none``."""
    partly: PartlyTurned | None = None
    """Rotation of some channels alone, instead of all."""
    reach: int | None = 0
    """Number of later keys that a query sees; None for all. It counts only in a causal mask."""
    is_causal: bool = False
    """Whether the mask is causal, in a block with a mask of its own."""
    window: int | None = None
    """Number of keys that a query sees, up to its own."""
    chunk: int | None = None
    """Number of queries of a block that sees its keys as the first block does; None for one block."""
    is_local: bool = False
    """Whether a block of queries sees its own keys alone."""
    hidden: int = 0
    """Number of keys at the start that no query sees."""
    score_factor: float = 1.0
    score_factors: Tensor | None = None
    """Factors of each head's scores ``[N]``."""
    slopes: Tensor | None = None
    """Number for each head that is added to its scores for each token between query and key, ``[N]``."""
    head_factors: Tensor | None = None
    """Factors of each head's output ``[N]``."""
    bias_factor: float = 1.0
    bias: str = ""
    """Change of relative positions: ``exchanged`` rows and columns, or ``reversed`` direction."""
    bias_shift: int = 0
    """Number of entries by which the tables of relative positions are read too late."""
    merged: bool = True
    """Whether the channels of a head stay together when heads are joined."""
    split: tuple[str, ...] = ()
    """Order of the axes by which the channels of queries, keys and values are split, if it is another."""
    order: tuple[int, int, int] = (0, 1, 2)
    """Tensors that are taken as queries, keys and values: 0 for queries, 1 for keys, 2 for values."""
    tiled: bool = False
    """Whether query head k uses key-value head k modulo their number."""
    heads: tuple[int, int, int] = (0, 0, 0)
    """Number of heads by which queries, keys and values are rolled."""
    attention_factor: float = 1.0
    mlp_factor: float = 1.0
    activation: Activation | None = None
    norms: tuple[bool, bool] = (True, True)
    """Whether the first and the second norm are used."""


RIGHT = Variant()


class Block:
    """A block of the engine with its input.

    Args:
        block: the block of a decoder or of an encoder.
        given: input of one view, ``[1, T, C]``, or of SAM ``[1, H, W, C]``.
        frequencies: inverse rotary frequencies, of a block with rotary positions.
        sees: such a block's own mask ``[T, T]``, True where a query sees a key; a causal one if left out.
    """

    def __init__(
        self, block: Any, given: Tensor, frequencies: Tensor | None = None, sees: Tensor | None = None
    ) -> None:
        self.block, self.frequencies, self.sees = block, frequencies, sees
        self.grid = tuple(given.shape[1:3]) if given.ndim == 4 else None
        self.x = given.reshape(-1, given.shape[-1])
        self.attention = block.attn if hasattr(block, "attn") else block.self_attn
        names = ("norm1", "norm2") if self.grid else ("layer_norm1", "layer_norm2")
        if self.is_decoder:
            names = ("input_layernorm", "post_attention_layernorm")
        self._norms = [getattr(block, name) for name in names]
        self._normed = {used: self._qkv(self._norms[0](self.x) if used else self.x) for used in (True,)}

    @property
    def is_decoder(self) -> bool:
        """Whether positions are rotary, and there is a mask."""
        return hasattr(self.attention, "q_proj")

    @property
    def head_count(self) -> int:
        """Number of heads of queries."""
        return len(self._normed[True][0])

    @property
    def head_width(self) -> int:
        """Number of a head's channels."""
        return self._normed[True][0].shape[-1]

    @property
    def shares_keys(self) -> bool:
        """Whether several heads of queries share one of keys and values."""
        q, k, _ = self._normed[True]
        return len(q) > len(k)

    @property
    def has_bias(self) -> bool:
        """Whether scores have a bias of relative positions."""
        return hasattr(self.attention, "rel_pos_h")

    def compute(self, how: Variant, rows: Tensor) -> Tensor:
        """Return some rows of the output, ``[R, C]``."""
        used, _ = how.norms
        if used not in self._normed:
            self._normed[used] = self._qkv(self.x)
        parts = self._split(how.split) if how.split else self._normed[used]
        qkv = [parts[one] for one in how.order]
        q, k, v = (one.roll(shift, 0) for one, shift in zip(qkv, how.heads, strict=True))
        q = q[:, rows]
        bias = self._bias(q, rows, how) if self.has_bias else None
        if self.is_decoder:
            q = self._rotated(q, rows + how.query_shift, how)
            k = self._rotated(k, torch.arange(len(self.x), device=k.device), how)
        times = len(q) // len(k)
        k, v = (one.repeat(times, 1, 1) if how.tiled else one.repeat_interleave(times, 0) for one in (k, v))
        scores = (q @ k.mT) * (how.score_factor / math.sqrt(q.shape[-1]))
        if how.score_factors is not None:
            scores = scores * how.score_factors[:, None, None].to(scores)
        if how.slopes is not None:
            apart = rows[:, None] - torch.arange(len(self.x), device=rows.device)
            scores = scores + how.slopes[:, None, None].to(scores) * apart
        if bias is not None:
            scores = scores + bias
        if self.is_decoder:
            scores = scores.masked_fill(~self._visible(rows, how), torch.finfo(scores.dtype).min)
        out = scores.softmax(-1, dtype=torch.float32).to(v.dtype) @ v
        if how.head_factors is not None:
            out = out * how.head_factors[:, None, None].to(out)
        joined = out.permute(1, 0, 2) if how.merged else out.permute(1, 2, 0)
        return self._finish(self.x[rows], joined.flatten(1), how)

    def _qkv(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        one = self.attention
        if self.is_decoder:
            parts = [layer(x) for layer in (one.q_proj, one.k_proj, one.v_proj)]
            q, k, v = (part.unflatten(-1, (-1, one.head_dim)).transpose(0, 1) for part in parts)
        else:
            joined = (one.qkv if self.grid else one.qkv_proj)(x)
            q, k, v = joined.view(len(x), 3, one.heads, -1).permute(1, 2, 0, 3)
        return q, k, v

    def _split(self, axes: tuple[str, ...]) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values, with the channels split by other axes than part, head, channel."""
        right = self._normed[True]
        sizes = {"part": 3, "head": len(right[0]), "channel": right[0].shape[-1]}
        if self.is_decoder:  # each is split on its own
            own = [one.transpose(0, 1).flatten(1) for one in right]
            q, k, v = (one.unflatten(1, (sizes["channel"], -1)).permute(2, 0, 1) for one in own)
            return q, k, v
        flat = torch.stack([one.transpose(0, 1) for one in right], 1).flatten(1)
        split = flat.unflatten(1, [sizes[one] for one in axes])
        places = [1 + axes.index(one) for one in ("part", "head", "channel")]
        q, k, v = split.permute(places[0], places[1], 0, places[2])
        return q, k, v

    def _rotated(self, x_NTD: Tensor, positions: Tensor, how: Variant) -> Tensor:
        if how.rotation == "none" or self.frequencies is None:
            return x_NTD
        if how.partly is not None:
            return how.partly.rotate(x_NTD, positions, self.frequencies.float())
        size = x_NTD.shape[-1]
        exponents = torch.arange(0, size, 2, device=x_NTD.device).float() / size
        frequencies = self.frequencies.float() / how.base_factor**exponents
        angles = (positions.float() * how.position_factor)[:, None] * frequencies
        cos, sin = angles.cos().to(x_NTD.dtype), angles.sin().to(x_NTD.dtype)
        sin = -sin if how.rotation == "backwards" else sin
        if how.rotation == "neighbours":
            first, second = x_NTD[..., ::2], x_NTD[..., 1::2]
            return torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(-2)
        first, second = x_NTD.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def _visible(self, rows: Tensor, how: Variant) -> Tensor:
        keys = torch.arange(len(self.x), device=rows.device)
        visible = keys <= rows[:, None] + len(keys) if how.reach is None else keys <= rows[:, None] + how.reach
        if self.sees is not None and how.reach == 0 and not how.is_causal:
            visible = self.sees[rows].clone()
        if how.window is not None:
            visible &= keys > rows[:, None] - how.window
        if how.chunk is not None:
            first = rows[:, None] // how.chunk * how.chunk
            visible &= keys >= first if how.is_local else keys <= rows[:, None] - first
        visible[:, : how.hidden] = False
        itself = keys == rows[:, None]
        return torch.where(visible.any(1, keepdim=True), visible, itself)

    def _bias(self, q_NRD: Tensor, rows: Tensor, how: Variant) -> Tensor:
        """Return the scores of relative rows and columns, ``[N, R, T]``."""
        assert self.grid is not None
        height, width = self.grid
        tables = [self.attention.rel_pos_h, self.attention.rel_pos_w]
        if how.bias == "exchanged":
            tables.reverse()
        scores = []
        for table, size, at in zip(tables, (height, width), (rows // width, rows % width), strict=True):
            table = _resized(table, 2 * size - 1).roll(-how.bias_shift, 0)
            apart = at[:, None] - torch.arange(size, device=rows.device)
            apart = -apart if how.bias == "reversed" else apart
            scores.append(torch.einsum("nrd,rkd->nrk", q_NRD, table[apart + size - 1]))
        both = scores[0][..., :, None] + scores[1][..., None, :]
        return how.bias_factor * both.flatten(2)

    def _finish(self, x_RC: Tensor, out_RC: Tensor, how: Variant) -> Tensor:
        one = self.attention
        project = one.o_proj if self.is_decoder else one.proj if self.grid else one.out_proj
        hidden = x_RC + how.attention_factor * project(out_RC)
        into = self._norms[1](hidden) if how.norms[1] else hidden
        done: Tensor = hidden + how.mlp_factor * _mlp(self.block.mlp, into, how.activation)
        return done


def _resized(table_LD: Tensor, length: int) -> Tensor:
    if len(table_LD) == length:
        return table_LD
    return F.interpolate(table_LD.float().T[None], size=length, mode="linear")[0].T.to(table_LD.dtype)


def _mlp(mlp: Any, x: Tensor, activation: Activation | None) -> Tensor:
    """Return the output of a perceptron or of experts, with another activation if one is given."""
    if activation is None:
        out: Tensor = mlp(x)
    elif isinstance(mlp, MixtureOfExperts):
        chosen, weights = mlp.gate(x)
        out = _mlp(mlp.shared_experts, x, activation)
        for expert in chosen.unique().tolist():
            tokens = (chosen == expert).any(1)
            weight = (weights * (chosen == expert)).sum(1)[tokens, None].to(x.dtype)
            out[tokens] += weight * _mlp(mlp.experts[expert], x[tokens], activation)
    elif isinstance(mlp, GatedMlp):
        out = mlp.down_proj(activation(mlp.gate_proj(x)) * mlp.up_proj(x))
    else:
        first, second = (mlp.lin1, mlp.lin2) if hasattr(mlp, "lin1") else (mlp.fc1, mlp.fc2)
        out = second(activation(first(x)))
    return out
