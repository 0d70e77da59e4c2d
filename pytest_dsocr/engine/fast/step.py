"""One decode step of all layers, from plain torch or fused kernels, and what the rows of a batch have read and written.

Rows are kept on the device: the next token of each is chosen there, the host not waiting.

Shapes: R rows, S positions that there is room for, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.engine.fast import plain
from pytest_dsocr.engine.fast.slots import Slot
from pytest_dsocr.engine.fast.weights import DecoderWeights


@dataclass(frozen=True)
class Operations:
    """What a step is made of; each is documented, in its slowest and clearest form, in ``fast.plain``."""

    qkv: Callable[..., Tensor]
    attend: Callable[..., Tensor]
    project: Callable[..., Tensor]
    score: Callable[..., Tensor]
    gate_up: Callable[..., tuple[Tensor, Tensor, Tensor]]
    down: Callable[..., Tensor]

    @classmethod
    def of(cls, module: Any) -> Operations:
        """Take the functions of these names from a module."""
        return cls(module.qkv, module.attend, module.project, module.score, module.gate_up, module.down)


PLAIN = Operations.of(plain)


def operations_for(device: torch.device) -> Operations:
    """Give Triton's kernels on a GPU, where the package is installed; plain torch elsewhere."""
    return _fused() if device.type == "cuda" and find_spec("triton") else PLAIN


@cache
def _fused() -> Operations:
    from pytest_dsocr.engine.fast import fused

    return Operations.of(fused)


def step(x_BC: Tensor, weights: DecoderWeights, slot: Slot, operations: Operations, *, round_router: bool) -> Tensor:
    """Feed one token a row at the slot's positions: float32 logits ``[B, V]``.

    Args:
        x_BC: the tokens' embeddings.
        weights: the model's.
        slot: keys and values, which the step writes to; its positions stay.
        operations: what to compute with.
        round_router: compute the router's scores in the weights' dtype, as autocast does, and not in float32.
    """
    for index, layer in enumerate(weights.layers):
        place, feed = slot.at(index), layer.feed
        q = operations.qkv(x_BC, layer, place)
        mixed = operations.attend(q, place, round_scores=weights.round_scores)
        x_BC = operations.project(mixed, layer.output, x_BC)
        scores = None
        if feed.router is not None:
            scores = operations.score(x_BC, layer.before_feed, feed.router, rounded=round_router)
        inner, chosen, shares = operations.gate_up(x_BC, layer.before_feed, scores, feed)
        x_BC = operations.down(inner, chosen, shares, feed, x_BC)
    return operations.score(x_BC, weights.norm, weights.head, rounded=True)


@dataclass(frozen=True, eq=False)
class Rows:
    """Pages side by side. A row whose page has ended, or that has none, stays where it is at each step."""

    positions: Tensor
    """``[R]`` int64: of the tokens that are fed next; a slot's own."""
    tokens: Tensor
    """``[R, S + 1]`` int64: prompt and output, up to the token that is fed next; any ids behind it."""
    last: Tensor
    """``[R]`` int64: the position of a row's last token, should nothing end it before."""
    running: Tensor
    """``[R]`` bool."""

    @classmethod
    def over(cls, positions: Tensor, room: int) -> Rows:
        """Give rows without pages, at these positions, which become 0."""
        positions.zero_()
        none = torch.zeros_like(positions)
        return cls(positions, none.new_zeros(len(none), room + 1), none, none.bool())

    def copy_(self, other: Rows) -> None:
        """Take over the same number of rows, which have no more room than these."""
        self.positions.copy_(other.positions)
        self.tokens[:, : other.tokens.shape[1]] = other.tokens
        self.last.copy_(other.last)
        self.running.copy_(other.running)

    def start(self, row: int, prompt: Tensor, logits: Tensor, policy: DecodePolicy) -> None:
        """Begin a row that does not run: with its prompt's ids ``[T]``, and a first token by the logits ``[1, V]``."""
        length = len(prompt)
        self.tokens[row, :length] = prompt
        self.positions[row] = length - 1
        self.last[row] = length - 1 + policy.max_new_tokens
        self.running[row] = True
        only = slice(row, row + 1)
        Rows(self.positions[only], self.tokens[only], self.last[only], self.running[only]).push(logits, policy)

    def fed(self) -> Tensor:
        """Give the tokens that are fed next, ``[R]``."""
        return self.tokens.gather(1, self.positions[:, None])[:, 0]

    def push(self, logits: Tensor, policy: DecodePolicy) -> None:
        """Append each running row's best token, by ``[R, V]``, that repeats no n-gram, and go on to it."""
        best = allowed(logits, self.tokens, self.positions, policy.no_repeat_ngram_size).argmax(dim=-1)
        token = torch.where(self.running, best, self.fed())
        self.positions.add_(self.running)
        self.tokens.scatter_(1, self.positions[:, None], token[:, None])
        self.running.logical_and_((token != policy.eos_id) & (self.positions < self.last))


def allowed(logits_RV: Tensor, tokens_RS: Tensor, positions_R: Tensor, size: int) -> Tensor:
    """Give the logits, minus infinity where a token would repeat an n-gram of the tokens up to ``positions``.

    As :class:`~pytest_dsocr.contract.policy.NgramBan`, for all rows at once.
    """
    if not 0 < size <= tokens_RS.shape[1]:
        return logits_RV
    device = tokens_RS.device
    latest = tokens_RS.gather(1, (positions_R[:, None] + torch.arange(2 - size, 1, device=device)).clamp(min=0))
    followers = tokens_RS[:, size - 1 :]
    repeated = (tokens_RS.unfold(1, size - 1, 1)[:, : followers.shape[1]] == latest[:, None]).all(dim=-1)
    written = torch.arange(size - 1, tokens_RS.shape[1], device=device) <= positions_R[:, None]
    limits = torch.full_like(followers, torch.inf, dtype=logits_RV.dtype).masked_fill(repeated & written, -torch.inf)
    return logits_RV.scatter_reduce(1, followers, limits, "amin")
