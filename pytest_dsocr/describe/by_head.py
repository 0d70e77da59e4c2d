"""Queries, keys or values that single heads of attention take from other heads, or rotate by another angle.

Shapes: N heads, P positions, D channels of a head.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Self

import torch
from torch import Tensor

from pytest_dsocr.base.words import joined
from pytest_dsocr.describe.core import AttentionCore, BiasOf, attended
from pytest_dsocr.describe.pair import LEAST_OF_LARGEST, TINY, named, spread

MOST_ROWS = 8
"""Number of queries from which another head or angle is found."""
MOST_SHIFT = 1024
"""Number of positions up to which another angle is looked for."""
UNTURNED = {
    "the keys are not rotated": (False, True, False),
    "the queries are not rotated": (True, False, False),
    "neither queries nor keys are rotated": (True, True, False),
}
"""Masks of queries, keys and values that are rotated back, by words."""
Turn = Callable[[Tensor, Tensor], Tensor]
"""Rotate ``[N, P, D]`` by the angles of some positions ``[P]``."""
TAKEN = {
    "the keys": (False, True, False),
    "the values": (False, False, True),
    "the queries": (True, False, False),
    "keys and values": (False, True, True),
    "queries, keys and values": (True, True, True),
}
"""Masks of queries, keys and values that are another head's, by words."""


@dataclass(frozen=True, eq=False)
class OwnHeads:
    """Heads of a view, of which some are wrong, on the CPU."""

    q: Tensor
    """Queries ``[N, P, D]``."""
    k: Tensor
    v: Tensor
    bias_of: Callable[[], Tensor | None]
    """Return the bias, which is large."""
    out: Tensor
    """The subject's output, ``[N, P, D]``."""
    wrong: list[int]
    """Heads that differ."""
    rows: Tensor
    """Queries that differ."""

    @classmethod
    def of(
        cls, q: Tensor, k: Tensor, v: Tensor, bias_of: Callable[[], Tensor | None], out: Tensor, right: Tensor
    ) -> Self:
        """Return the heads of a view, with those that differ from the right output."""
        apart = (out - right).norm(dim=-1)
        heads = apart.norm(dim=1) / right.norm(dim=(1, 2)).clamp_min(TINY)
        wrong = heads > LEAST_OF_LARGEST * heads.max()
        rows = apart[wrong].norm(dim=0)
        differing = (rows > LEAST_OF_LARGEST * rows.max()).nonzero().flatten()
        q, k, v = (one.float().cpu() for one in (q, k, v))
        return cls(q, k, v, bias_of, out, wrong.nonzero().flatten().tolist(), differing)

    @cached_property
    def bias(self) -> Tensor | None:
        """Number that is added to each score, ``[N, P or 1, P]``."""
        bias = self.bias_of()
        return None if bias is None else bias.float().cpu().expand(*self.q.shape[:2], -1)

    def some(self, most: int) -> Tensor:
        """Return some queries that differ, from the first to the last."""
        return self.rows[spread(len(self.rows), max(1, most))]

    def scores(self, heads: Sequence[int], rows: Tensor, keys: Sequence[int] | None = None) -> Tensor:
        """Return the scores of some queries of some heads, over the keys of the same or of other heads."""
        scores = self.q[heads][:, rows] @ self.k[keys or heads].mT / math.sqrt(self.q.shape[-1])
        return scores if self.bias is None else scores + self.bias[heads][:, rows]

    def left(self, head: int, rows: Tensor, out: Tensor) -> float:
        """Return the relative error of an output of some queries of a head."""
        own = self.out[head, rows]
        return float((out - own).norm() / own.norm().clamp_min(TINY))

    @property
    def words(self) -> str:
        """Name of the heads that differ, if others are right."""
        some = len(self.wrong) < len(self.q)
        return f"{named('head', self.wrong)} of {len(self.q)}" if some else ""


def other_heads(own: OwnHeads) -> Iterator[tuple[str, AttentionCore]]:
    """Yield attention in which heads take tensors of other heads, with words."""
    count, rows = len(own.q), own.some(MOST_ROWS)
    for words, (of_q, of_k, of_v) in TAKEN.items():
        sources = [*range(count)]
        for head in own.wrong:
            left = list[float]()
            for other in range(count):
                one, key, value = (other if taken else head for taken in (of_q, of_k, of_v))
                out = own.scores([one], rows, [key]).softmax(-1) @ own.v[[value]]
                left.append(own.left(head, rows, out[0]))
            sources[head] = min(range(count), key=left.__getitem__)
        if all(sources[one] != one for one in own.wrong):
            others = joined([str(sources[one]) for one in own.wrong])
            yield (
                f"{words} are those of head{'s' * (len(own.wrong) > 1)} {others}",
                partial(_taken, sources, (of_q, of_k, of_v)),
            )


def other_angles(own: OwnHeads, turn: Turn) -> Iterator[tuple[str, AttentionCore]]:
    """Yield attention with queries, keys or values that are rotated by other angles, with words."""
    at = torch.arange(own.q.shape[1])
    for words, of in UNTURNED.items():
        yield words, partial(_turned, turn, -at, of)
    yield "the values are rotated like the keys", partial(_turned, turn, at, (False, False, True))
    shifts = torch.arange(-MOST_SHIFT, MOST_SHIFT + 1)
    left = torch.zeros(len(shifts))
    for head, row in product(own.wrong, own.some(MOST_ROWS).tolist()):
        asked = turn(own.q[head, row].expand(1, len(shifts), -1), shifts)[0]
        scores = asked @ own.k[head].mT / math.sqrt(own.q.shape[-1])
        scores = scores if own.bias is None else scores + own.bias[head, row]
        apart = scores.softmax(-1) @ own.v[head] - own.out[head, row]
        left += apart.norm(dim=1) / own.out[head, row].norm().clamp_min(TINY)
    if shift := int(shifts[int(left.argmin())]):
        far = f"{abs(shift)} position{'s' * (abs(shift) > 1)} {'later' if shift > 0 else 'earlier'}"
        yield (
            f"the queries are rotated for {far}",
            partial(_turned, turn, torch.full_like(at, shift), (True, False, False)),
        )


def _taken(sources: list[int], of: tuple[bool, bool, bool], q: Tensor, k: Tensor, v: Tensor, bias_of: BiasOf) -> Tensor:
    q, k, v = (x[:, sources] if one else x for x, one in zip((q, k, v), of, strict=True))
    return attended(q, k, v, bias_of)


def _turned(
    turn: Turn, positions: Tensor, of: tuple[bool, bool, bool], q: Tensor, k: Tensor, v: Tensor, bias_of: BiasOf
) -> Tensor:
    q, k, v = (turn(x[0], positions.to(x.device))[None] if one else x for x, one in zip((q, k, v), of, strict=True))
    return attended(q, k, v, bias_of)
