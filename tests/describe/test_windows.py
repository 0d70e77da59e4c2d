"""Mistakes planted in the windows of SAM and their relative positions are found."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.layers import sam
from tests.describe.planted import Found, Planted


def both_tables(change: Callable[[Tensor], Tensor]) -> Planted:
    """Return a mistake of both tables of relative positions."""

    def plant(layer: Any, changes: Changes) -> None:
        for table in (layer.attn.rel_pos_h, layer.attn.rel_pos_w):
            changes.weight(table, change(table.data.clone()))

    return plant


def tables_late(layer: Any, changes: Changes) -> None:
    right = sam.relative_table

    def late(table: Tensor, size: int) -> Tensor:
        return right(sam.resize_line(table, 2 * size - 1).roll(-1, 0), size)

    changes.set(sam, "relative_table", late)


def half_of_attention(layer: Any, changes: Changes) -> None:
    changes.around(layer.attn, lambda run, x: 0.5 * run(x))


def windows_moved(layer: Any, changes: Changes) -> None:
    right = layer.attend
    changes.set(layer, "attend", lambda x: right(x.roll((7, 7), (1, 2))).roll((-7, -7), (1, 2)))


def windows_from_the_end(layer: Any, changes: Changes) -> None:
    def attend(x: Tensor) -> Tensor:
        front = F.pad(x, (0, 0, -x.shape[2] % layer.window, 0, -x.shape[1] % layer.window, 0))
        out = sam.join_windows(layer.attn(sam.split_windows(front, layer.window)), *front.shape[1:3])
        return out[:, -x.shape[1] :, -x.shape[2] :]

    changes.set(layer, "attend", attend)


FOUND: Mapping[str, Found] = {
    "tables": Found("sam.page/2", tables_late, "bias", "tables of relative positions are read 1 late"),
    "no tables": Found("sam.page/2", both_tables(torch.zeros_like), "bias", "relative positions are left out"),
    "windows": Found("sam.page/1", windows_from_the_end, "windows", "padded in front, not at the end"),
    "moved windows": Found("sam.page/1", windows_moved, "windows", "moved by 7 positions, around the edge"),
    "a window's attention": Found("sam.page/1", half_of_attention, "attention", "counts 0.5 times"),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_differs_in_windows_is_found(name: str) -> None:
    FOUND[name].check()
