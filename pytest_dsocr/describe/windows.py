"""Describe windows of SAM's attention that are cut elsewhere, or in another size.

Shapes: H x W positions of one view, C channels.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeGuard

import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.layout import pair_of
from pytest_dsocr.describe.pair import RowPair, halves, share
from pytest_dsocr.layers.sam import SamBlock, join_windows, split_windows

SIZES = (7, 8, 10, 12, 16, 20, 28, 32)
MOST_POSITIONS = 4096
"""Number of positions up to which attention over the whole view is tried."""
WindowAttention = Callable[[Tensor], Tensor]


def has_windows(block: object) -> TypeGuard[SamBlock]:
    """Return whether a block's attention sees windows."""
    return isinstance(block, SamBlock) and block.window > 0


def one_window(given: Tensor, gave: Tensor, own: Tensor, window: int) -> tuple[Tensor, RowPair]:
    """Return the input of the window that differs most, and the pair of its outputs, without those with padding."""
    whole = [size - size % window for size in given.shape[1:3]]
    cut = [split_windows(one[:, : whole[0], : whole[1]], window) for one in (given, gave, own)]
    place = int((cut[1] - cut[2]).float().flatten(1).norm(dim=1).argmax())
    given, gave, own = (one[place : place + 1] for one in cut)
    return given, pair_of(gave, own, channels_last=True)


def describe_windows(block: SamBlock, given: Tensor, pair: RowPair) -> Description | None:
    """Return the way to cut ``[1, H, W, C]`` into windows that reproduces the output; None if none does.

    Half of the positions choose the way, and the other half verify it.
    """
    fit, test = halves(pair.actual.shape[:2])
    normed = block.norm1(given)
    found: list[tuple[float, str, Tensor]] = []
    for text, attend in _ways(block, *given.shape[1:3]):
        attended = given + attend(normed)
        predicted = (attended + block.mlp(block.norm2(attended))).flatten(1, 2).float().cpu()
        found.append((share(pair, predicted, fit), text, predicted))
    best = max(found, key=lambda one: one[0])
    return Description("windows", best[1], share(pair, best[2], test), int(test.sum()))


def _ways(block: SamBlock, height: int, width: int) -> Iterator[tuple[str, WindowAttention]]:
    window = block.window
    below, right = -height % window, -width % window
    half = (below // 2, right // 2)
    if below or right:
        yield "the windows are padded in front, not at the end", partial(_padded, block, (below, right))
        yield "the windows are padded on both sides, not at the end", partial(_padded, block, half)
    for shift in (window // 2, -(window // 2)):
        yield f"the windows are moved by {shift} positions, around the edge", partial(_moved, block, shift)
    if height * width <= MOST_POSITIONS:
        yield "attention sees the whole view instead of windows", block.attn
    for size in SIZES:
        if size != window and size < height:
            yield f"the windows have {size} positions on a side instead of {window}", partial(_cut, block, size)


def _padded(block: SamBlock, before: tuple[int, int], x: Tensor) -> Tensor:
    height, width = x.shape[1:3]
    front = F.pad(x, (0, 0, before[1], 0, before[0], 0))
    out = join_windows(block.attn(split_windows(front, block.window)), *front.shape[1:3])
    return out[:, before[0] : before[0] + height, before[1] : before[1] + width]


def _moved(block: SamBlock, shift: int, x: Tensor) -> Tensor:
    moved = x.roll((shift, shift), (1, 2))
    return _cut(block, block.window, moved).roll((-shift, -shift), (1, 2))


def _cut(block: SamBlock, size: int, x: Tensor) -> Tensor:
    return join_windows(block.attn(split_windows(x, size)), *x.shape[1:3])
