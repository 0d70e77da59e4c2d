"""What the rows of a batch have read and written, on the device: the next token of each, the host not waiting.

Shapes: R rows, S positions that there is room for, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_dsocr.contract.policy import DecodePolicy


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
