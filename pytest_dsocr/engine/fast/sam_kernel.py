"""SAM's attention in Triton: windows, their padding and relative positions are read where they are.

Pointers are to contiguous tensors; sizes in capitals are known as a kernel is compiled.
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
    KEYS: tl.constexpr,
):
    """Some queries of one head over all keys of their window, block by block.

    Programs: ``[SIDE * SIDE / QUERIES, N, windows]``. ``scores`` are each query's with each offset, ``[N, T, L]``; those
    of the first row of keys and a query in the first row lie at ``rows_from``, of columns likewise. These two are told at
    run time, since Triton takes what is subtracted from a known number for aligned, and it is not.
    """
    C: tl.constexpr = N * D
    COUNT: tl.constexpr = SIDE * SIDE
    head = tl.program_id(1)
    across = (width + SIDE - 1) // SIDE
    windows = across * ((height + SIDE - 1) // SIDE)
    first_token = (tl.program_id(2) // windows) * height * width
    window = tl.program_id(2) % windows
    top, left = (window // across) * SIDE, (window % across) * SIDE

    query = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    row, column = query // SIDE, query % SIDE
    asked = (query < COUNT) & (top + row < height) & (left + column < width)
    token = first_token + (top + row) * width + left + column
    d = tl.arange(0, D_UP)
    q = tl.load(
        qkv + token[:, None] * (3 * C) + head * D + d[None, :], mask=asked[:, None] & (d < D)[None, :], other=0.0
    )
    own = scores + (head.to(tl.int64) * tokens + token) * LENGTH
    of_row, of_column = own + rows_from - row, own + columns_from - column
    if KEYS == SIDE:  # a block is a row of keys
        by_column = tl.load(of_column[:, None] + tl.arange(0, KEYS)[None, :], mask=asked[:, None], other=0.0).to(
            tl.float32
        )

    peak = tl.full([QUERIES], -float("inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    mixed = tl.zeros([QUERIES, D_UP], tl.float32)
    for start in range(0, COUNT, KEYS):
        key = start + tl.arange(0, KEYS)
        key_row, key_column = key // SIDE, key % SIDE
        there = key < COUNT
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
        if KEYS == SIDE:
            score += by_column + tl.load(of_row + start // SIDE, mask=asked, other=0.0).to(tl.float32)[:, None]
        else:
            both = asked[:, None] & there[None, :]
            score += tl.load(of_row[:, None] + key_row[None, :], mask=both, other=0.0).to(tl.float32)
            score += tl.load(of_column[:, None] + key_column[None, :], mask=both, other=0.0).to(tl.float32)
            score = tl.where(there[None, :], score, -float("inf"))
        higher = tl.maximum(peak, tl.max(score, axis=1))
        weights = tl.exp(score - higher[:, None])
        before = tl.exp(peak - higher)
        total = total * before + tl.sum(weights, axis=1)
        mixed = tl.dot(weights.to(v.dtype), v, mixed * before[:, None], input_precision="ieee")
        peak = higher
    mixed = mixed / total[:, None]
    to = out + token[:, None] * C + head * D + d[None, :]
    tl.store(to, mixed.to(out.dtype.element_ty), mask=asked[:, None] & (d < D)[None, :])
