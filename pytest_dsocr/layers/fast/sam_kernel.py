"""SAM's attention in Triton: windows, their padding and relative positions are read without copies.

Pointers are to contiguous tensors; sizes in capitals are compile-time constants.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rows_from", "columns_from"])
def attend_kernel(
    qkv,
    padding,
    scores,
    out,
    tokens,
    height,
    width,
    scale,
    rows_from,
    columns_from,
    N: tl.constexpr,
    D: tl.constexpr,
    D_UP: tl.constexpr,
    SIDE: tl.constexpr,
    LENGTH: tl.constexpr,
    PADDED: tl.constexpr,
    QUERIES: tl.constexpr,
    UP: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Attend with some queries of one head to all keys of their window, some rows of keys at once, padded to ``UP``.

    Programs: ``[SIDE * SIDE / QUERIES, N, windows]``. ``scores`` ``[N, T, L]`` has each query's with each offset. Those
    of the first row of keys and a query in the first row start at ``rows_from``, those of columns at ``columns_from``.
    Both are run-time arguments: Triton wrongly assumes that the difference from a compile-time constant is aligned.
    """
    C: tl.constexpr = N * D
    head = tl.program_id(1)
    across = (width + SIDE - 1) // SIDE
    windows = across * ((height + SIDE - 1) // SIDE)
    first_token = (tl.program_id(2) // windows) * height * width
    window = tl.program_id(2) % windows
    top, left = (window // across) * SIDE, (window % across) * SIDE

    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    row, column = query // SIDE, query % SIDE
    asked = (query < SIDE * SIDE) & (top + row < height) & (left + column < width)
    token = first_token + (top + row) * width + left + column
    d = tl.arange(0, D_UP)
    q = tl.load(
        qkv + token[:, None] * (3 * C) + head * D + d[None, :], mask=asked[:, None] & (d < D)[None, :], other=0.0
    )
    own = scores + (head.to(tl.int64) * tokens + token) * LENGTH
    of_row, of_column = own + rows_from - row, own + columns_from - column
    lane = tl.arange(0, ROWS * UP)
    key_column = lane % UP
    both = asked[:, None] & (key_column < SIDE)[None, :]
    by_column = tl.load(of_column[:, None] + key_column[None, :], mask=both, other=0.0).to(tl.float32)

    peak = tl.full([QUERIES], -float("inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mixed = tl.zeros([QUERIES, D_UP], tl.float32)
    for first in range(0, SIDE, ROWS):
        key_row = first + lane // UP
        there = (key_column < SIDE) & (key_row < SIDE)
        inside = there & (top + key_row < height) & (left + key_column < width)
        at = (
            qkv + (first_token + (top + key_row) * width + left + key_column)[:, None] * (3 * C) + head * D + d[None, :]
        )
        mask = inside[:, None] & (d < D)[None, :]
        k = tl.load(at + C, mask=mask, other=0.0)
        v = tl.load(at + 2 * C, mask=mask, other=0.0)
        if PADDED:
            k = tl.where(inside[:, None], k, tl.load(padding + C + head * D + d, mask=d < D, other=0.0)[None, :])
            v = tl.where(inside[:, None], v, tl.load(padding + 2 * C + head * D + d, mask=d < D, other=0.0)[None, :])
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        if ROWS == 1:
            by_row = tl.load(of_row + first, mask=asked, other=0.0)[:, None]
        else:
            both = asked[:, None] & (key_row < SIDE)[None, :]
            by_row = tl.load(of_row[:, None] + key_row[None, :], mask=both, other=0.0)
        score = tl.where(there[None, :], score + by_column + by_row.to(tl.float32), -float("inf"))
        higher = tl.maximum(peak, tl.max(score, axis=1))
        weights = tl.exp(score - higher[:, None])
        before = tl.exp(peak - higher)
        total = total * before + tl.sum(weights, axis=1)
        mixed = tl.dot(weights.to(v.dtype), v, mixed * before[:, None], input_precision="ieee")
        peak = higher
    mixed = mixed / total[:, None]
    to = out + token[:, None] * C + head * D + d[None, :]
    tl.store(to, mixed.to(out.dtype.element_ty), mask=asked[:, None] & (d < D)[None, :])
