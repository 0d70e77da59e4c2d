"""Attention of one token over a static cache: two kernels, and one that puts their blocks together."""

from __future__ import annotations

import triton
import triton.language as tl

from pytest_dsocr.engine.fast.kernels.products import both_times_normalised, inverse_rms, rounded, tiles_of


@triton.jit
def qkv_kernel(
    x,
    norm,
    eps,
    weight,
    positions,
    targets,
    cos,
    sin,
    queries,
    keys,
    values,
    room,
    C: tl.constexpr,
    C_UP: tl.constexpr,
    N: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    PAIRS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Norm, one product for queries, keys and values, rotary positions, and the write into the cache.

    Programs: ``[(N + 2G) * (D / 2) / PAIRS, B]``; each has pairs of channels of one head, as they are rotated together.
    """
    HALF: tl.constexpr = D // 2
    BLOCKS: tl.constexpr = (HALF + PAIRS - 1) // PAIRS
    token = tl.program_id(1)
    head = tl.program_id(0) // BLOCKS
    pair = (tl.program_id(0) % BLOCKS) * PAIRS + tl.arange(0, PAIRS)
    valid = pair < HALF
    x += token * C
    rows = head * D + pair
    first, second = tiles_of(weight, rows, valid, C, WIDTH), tiles_of(weight, rows + HALF, valid, C, WIDTH)
    a, b = both_times_normalised(first, second, x, norm, inverse_rms(x, eps, C, C_UP), C, WIDTH)
    a, b = rounded(a, x), rounded(b, x)

    position, target = tl.load(positions + token), tl.load(targets + token)
    c = tl.load(cos + position * HALF + pair, mask=valid, other=0.0).to(tl.float32)
    s = tl.load(sin + position * HALF + pair, mask=valid, other=0.0).to(tl.float32)
    turned_a = rounded(a * c, x) - rounded(b * s, x)
    turned_b = rounded(b * c, x) + rounded(a * s, x)
    to = x.dtype.element_ty
    if head < N:
        out = queries + token * N * D + head * D + pair
        tl.store(out, turned_a.to(to), mask=valid)
        tl.store(out + HALF, turned_b.to(to), mask=valid)
    elif head < N + G:
        out = keys + ((token * G + head - N).to(tl.int64) * room + target) * D + pair
        tl.store(out, turned_a.to(to), mask=valid)
        tl.store(out + HALF, turned_b.to(to), mask=valid)
    else:
        out = values + ((token * G + head - N - G).to(tl.int64) * room + target) * D + pair
        tl.store(out, a.to(to), mask=valid)
        tl.store(out + HALF, b.to(to), mask=valid)


@triton.jit
def attend_kernel(
    queries,
    keys,
    values,
    lasts,
    partial,
    peaks,
    sums,
    room,
    scale,
    N: tl.constexpr,
    G: tl.constexpr,
    D: tl.constexpr,
    D_UP: tl.constexpr,
    BLOCK: tl.constexpr,
    ROUND: tl.constexpr,
):
    """Attend with one head to ``BLOCK`` positions: weighted values, highest score, and sum of the weights.

    Programs: ``[room / BLOCK, N, B]``; those after the last position return at once.
    """
    block, head, token = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lasts + token) + 1
    if block * BLOCK < length:
        at = block * BLOCK + tl.arange(0, BLOCK)
        d = tl.arange(0, D_UP)
        seen = at < length
        mask = seen[:, None] & (d < D)[None, :]
        base = (token * G + head // (N // G)).to(tl.int64) * room * D
        where = base + at[:, None] * D + d[None, :]
        q = tl.load(queries + (token * N + head) * D + d, mask=d < D, other=0.0).to(tl.float32)
        k = tl.load(keys + where, mask=mask, other=0.0).to(tl.float32)
        v = tl.load(values + where, mask=mask, other=0.0).to(tl.float32)
        scores = tl.sum(k * q[None, :], axis=1)
        if ROUND:
            scores = rounded(scores, keys)
        scores = scores * scale
        if ROUND:
            scores = rounded(scores, keys)
        scores = tl.where(seen, scores, -float("inf"))
        peak = tl.max(scores)
        weights = tl.exp(scores - peak)
        out = (token * N + head) * tl.num_programs(0) + block
        tl.store(partial + out * D + d, tl.sum(v * weights[:, None], axis=0), mask=d < D)
        tl.store(peaks + out, peak)
        tl.store(sums + out, tl.sum(weights))


@triton.jit
def join_kernel(
    partial,
    peaks,
    sums,
    lasts,
    mixed,
    BLOCKS: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    D_UP: tl.constexpr,
    BLOCK: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """Put the blocks of one head together. Programs: ``[N, B]``."""
    head, token = tl.program_id(0), tl.program_id(1)
    filled = (tl.load(lasts + token) + BLOCK) // BLOCK
    base = (token * N + head) * BLOCKS
    d = tl.arange(0, D_UP)
    peak = -float("inf")
    total = 0.0
    out = tl.zeros([D_UP], tl.float32)
    for start in tl.static_range(0, BLOCKS, AT_ONCE):
        at = start + tl.arange(0, AT_ONCE)
        there = at < filled
        highest = tl.load(peaks + base + at, mask=there, other=-float("inf"))
        higher = tl.maximum(peak, tl.max(highest))
        share = tl.exp(highest - higher)
        mask = there[:, None] & (d < D)[None, :]
        parts = tl.load(partial + (base + at)[:, None] * D + d[None, :], mask=mask, other=0.0)
        before = tl.exp(peak - higher)
        out = out * before + tl.sum(parts * share[:, None], axis=0)
        total = total * before + tl.sum(tl.load(sums + base + at, mask=there, other=0.0) * share)
        peak = higher
    tl.store(mixed + (token * N + head) * D + d, (out / total).to(mixed.dtype.element_ty), mask=d < D)
