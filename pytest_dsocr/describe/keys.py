"""Keys that attention hides: of each number of hidden keys the outputs of a few queries are computed at once.

Shapes: N heads, R queries that are computed, S keys, D channels of a head.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.describe.by_head import OwnHeads
from pytest_dsocr.describe.pair import TINY

MOST_VALUES = 1 << 23
"""Number of values of the sums over keys, which bounds the number of queries."""
MOST_ROWS = 16
HiddenKeys = Callable[[Tensor, Tensor], Tensor]
"""Return which keys are hidden, from the places of queries and keys."""


def hidden_keys(own: OwnHeads) -> Iterator[tuple[str, HiddenKeys]]:
    """Yield which keys the subject seems to hide, with words: the first or last ones, the nearest or farthest ones."""
    count = own.k.shape[1]
    rows = own.some(min(MOST_ROWS, MOST_VALUES // (count * len(own.wrong) * own.v.shape[2])))
    mass = own.scores(own.wrong, rows).double()
    mass = (mass - mass.amax(-1, keepdim=True)).exp()
    sums = (mass[..., None] * own.v[own.wrong].double()[:, None]).cumsum(2)
    sizes = mass.cumsum(2)
    later = torch.cat([sums[:, :, -1:], sums[:, :, -1:] - sums[:, :, :-1]], 2)
    sizes_later = torch.cat([sizes[:, :, -1:], sizes[:, :, -1:] - sizes[:, :, :-1]], 2)
    target = own.out[own.wrong][:, rows].double()[:, :, None]
    until, since = (
        (of / size[..., None].clamp_min(TINY) - target).square().sum((0, 3))
        for of, size in ((sums, sizes), (later, sizes_later))
    )  # [R, S]: only the keys up to one are seen, or only those from one on
    yield from _words(int(until.sum(0).argmin()) + 1, int(since.sum(0).argmin()), count)
    nearest = _relative(until, rows)
    if nearest < 0:
        words = "no position sees itself" if nearest == -1 else f"no position sees the {-nearest} keys up to itself"
        yield words, lambda query, key: key > query + nearest
    farthest = _relative(since, rows)
    if farthest <= 0:
        yield (
            f"each position sees only the {1 - farthest} keys up to itself",
            lambda query, key: key < query + farthest,
        )


def _relative(errors_RS: Tensor, rows: Tensor) -> int:
    """Return the place of a key, relative to the query's, that fits all queries best."""
    count = errors_RS.shape[1]
    places = torch.arange(count) - rows[:, None] + count
    sums = torch.zeros(2 * count, dtype=errors_RS.dtype).index_add(0, places.flatten(), errors_RS.flatten())
    seen = torch.bincount(places.flatten(), minlength=2 * count)
    sums[seen < len(rows)] = torch.inf
    return int(sums.argmin()) - count


def _words(first: int, last: int, count: int) -> Iterator[tuple[str, Any]]:
    if left := count - first:
        unit = first & -first
        behind = f": those behind the last multiple of {unit}" if 1 < left < unit else ""
        which = f"the last {left} of {count} keys are" if left > 1 else f"the last of {count} keys is"
        yield f"{which} hidden{behind}", lambda query, key: key >= first
    if last:
        which = f"the first {last} of {count} keys are" if last > 1 else f"the first of {count} keys is"
        yield f"{which} hidden", lambda query, key: key < last
