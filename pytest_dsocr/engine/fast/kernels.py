"""A decode step's kernels, in Triton: each reads its weights once, and rounds where the plain operations round.

A product of a matrix and one token's vector is limited by memory. So a program multiplies a few rows of the matrix,
reads the whole vector, and does again what came before the product, such as its norm, which is then never written.

Pointers are to contiguous tensors; sizes in capitals are known as a kernel is compiled. ``token`` is the batch's row.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rounded(value, like):
    """Round to the dtype that ``like`` points to, and give float32."""
    return value.to(like.dtype.element_ty).to(tl.float32)


@triton.jit
def inverse_rms(x, eps, C: tl.constexpr, C_UP: tl.constexpr):
    """Give ``rsqrt(mean(x ** 2) + eps)`` of ``[C]``."""
    at = tl.arange(0, C_UP)
    wide = tl.load(x + at, mask=at < C, other=0.0).to(tl.float32)
    return tl.rsqrt(tl.sum(wide * wide) / C + eps)


@triton.jit
def tiles_of(weight, rows, valid, C: tl.constexpr, WIDTH: tl.constexpr):
    """Load some rows of ``[R, C]``, tile by tile, all of them before the first is waited for."""
    tiles = ()
    for start in tl.static_range(0, C, WIDTH):
        at = start + tl.arange(0, WIDTH)
        mask = valid[:, None] & (at < C)[None, :]
        tiles = tiles + (tl.load(weight + rows[:, None] * C + at[None, :], mask=mask, other=0.0),)  # noqa: RUF005
    return tiles


@triton.jit
def normalised(x, norm, inverse, at, C: tl.constexpr):
    """Give the channels ``at`` of a vector, normalised, as float32."""
    value = tl.load(x + at, mask=at < C, other=0.0).to(tl.float32)
    weight = tl.load(norm + at, mask=at < C, other=0.0).to(tl.float32)
    return rounded(weight * rounded(value * inverse, x), x)


@triton.jit
def times_normalised(tiles, x, norm, inverse, C: tl.constexpr, WIDTH: tl.constexpr):
    """Multiply tiles by a vector ``[C]`` that is normalised first: float32, not rounded yet."""
    total = tl.zeros(tiles[0].shape, tl.float32)
    for start in tl.static_range(0, C, WIDTH):
        value = normalised(x, norm, inverse, start + tl.arange(0, WIDTH), C)
        total += tiles[start // WIDTH].to(tl.float32) * value[None, :]
    return tl.sum(total, axis=1)


@triton.jit
def both_times_normalised(first, second, x, norm, inverse, C: tl.constexpr, WIDTH: tl.constexpr):
    """Multiply two sets of tiles by the same normalised vector."""
    total = tl.zeros(first[0].shape, tl.float32)
    other = tl.zeros(first[0].shape, tl.float32)
    for start in tl.static_range(0, C, WIDTH):
        value = normalised(x, norm, inverse, start + tl.arange(0, WIDTH), C)[None, :]
        total += first[start // WIDTH].to(tl.float32) * value
        other += second[start // WIDTH].to(tl.float32) * value
    return tl.sum(total, axis=1), tl.sum(other, axis=1)


@triton.jit
def times(tiles, x, rows, C: tl.constexpr, WIDTH: tl.constexpr):
    """Multiply tiles by a vector ``[C]``, which each row reads anew, so that no thread waits for another."""
    total = tl.zeros(tiles[0].shape, tl.float32)
    for start in tl.static_range(0, C, WIDTH):
        at = (rows * 0)[:, None] + (start + tl.arange(0, WIDTH))[None, :]
        total += tiles[start // WIDTH].to(tl.float32) * tl.load(x + at, mask=at < C, other=0.0).to(tl.float32)
    return tl.sum(total, axis=1)


@triton.jit
def qkv_kernel(
    x,
    norm,
    eps,
    weight,
    positions,
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

    position = tl.load(positions + token)
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
        out = keys + ((token * G + head - N).to(tl.int64) * room + position) * D + pair
        tl.store(out, turned_a.to(to), mask=valid)
        tl.store(out + HALF, turned_b.to(to), mask=valid)
    else:
        out = values + ((token * G + head - N - G).to(tl.int64) * room + position) * D + pair
        tl.store(out, a.to(to), mask=valid)
        tl.store(out + HALF, b.to(to), mask=valid)


@triton.jit
def attend_kernel(
    queries,
    keys,
    values,
    positions,
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
    """One head over ``BLOCK`` positions: the weighted values, the highest score, and the sum of the weights.

    Programs: ``[room / BLOCK, N, B]``; those behind the last position end at once.
    """
    block, head, token = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(positions + token) + 1
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
    positions,
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
    filled = (tl.load(positions + token) + BLOCK) // BLOCK
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


@triton.jit
def project_kernel(inputs, weight, residual, out, rows_of, H: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """A product, added to the residual. Programs: ``[C / ROWS, B]``."""
    token = tl.program_id(1)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = rows < rows_of
    made = rounded(times(tiles_of(weight, rows, valid, H, WIDTH), inputs + token * H, rows, H, WIDTH), inputs)
    at = token * rows_of + rows
    before = tl.load(residual + at, mask=valid, other=0.0).to(tl.float32)
    tl.store(out + at, (before + made).to(out.dtype.element_ty), mask=valid)


@triton.jit
def score_kernel(
    x,
    norm,
    eps,
    weight,
    scores,
    rows_of,
    C: tl.constexpr,
    C_UP: tl.constexpr,
    ROUND: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Norm and a product, given in float32. Programs: ``[R / ROWS, B]``."""
    token = tl.program_id(1)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = rows < rows_of
    x += token * C
    tiles = tiles_of(weight, rows, valid, C, WIDTH)
    made = times_normalised(tiles, x, norm, inverse_rms(x, eps, C, C_UP), C, WIDTH)
    if ROUND:
        made = rounded(made, x)
    tl.store(scores + token.to(tl.int64) * rows_of + rows, made, mask=valid)


@triton.jit
def choice(scores, rank, E: tl.constexpr, E_UP: tl.constexpr, K: tl.constexpr, NORMALISE: tl.constexpr):
    """Give the expert of this rank among the softmax scores ``[E]``, the first of equals first, and its weight."""
    at = tl.arange(0, E_UP)
    raw = tl.load(scores + at, mask=at < E, other=-float("inf"))
    weights = tl.exp(raw - tl.max(raw))
    weights = weights / tl.sum(weights)
    weights = tl.where(at < E, weights, -1.0)
    theirs, other = weights[None, :], at[None, :]
    before = (theirs > weights[:, None]) | ((theirs == weights[:, None]) & (other < at[:, None]))
    ranks = tl.sum(before.to(tl.int32), axis=1)
    own = ranks == rank
    expert = tl.minimum(tl.sum(tl.where(own, at, 0)), E - 1)  # of scores that are NaN all ranks are 0
    weight = tl.sum(tl.where(own, weights, 0.0))
    if NORMALISE:
        weight = weight / (tl.sum(tl.where(ranks < K, weights, 0.0)) + 1e-20)
    return expert, weight


@triton.jit
def gate_up_kernel(
    x,
    norm,
    eps,
    scores,
    experts,
    shared,
    inner,
    chosen,
    shares,
    scale,
    C: tl.constexpr,
    C_UP: tl.constexpr,
    E: tl.constexpr,
    E_UP: tl.constexpr,
    K: tl.constexpr,
    I: tl.constexpr,  # noqa: E741 - channels inside an expert, as everywhere
    J: tl.constexpr,
    NORMALISE: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Choice of experts, norm, and ``silu(gate) * up`` of the chosen and of the shared ones.

    Programs: ``[K * I / ROWS + J / ROWS, B]``, each expert's rounded up. An expert's weights are read where they are.
    """
    BLOCKS: tl.constexpr = (I + ROWS - 1) // ROWS
    token = tl.program_id(1)
    block = tl.program_id(0)
    weight = shared
    apart = J
    out = inner + token * (K * I + J) + K * I
    first = (block - K * BLOCKS) * ROWS
    if K > 0:  # noqa: SIM102 - known as it is compiled
        if block < K * BLOCKS:
            rank = block // BLOCKS
            expert, share = choice(scores + token * E, rank, E, E_UP, K, NORMALISE)
            weight = experts + expert.to(tl.int64) * (2 * I * C)
            apart = I
            out = inner + token * (K * I + J) + rank * I
            first = (block % BLOCKS) * ROWS
            if first == 0:
                tl.store(chosen + token * K + rank, expert.to(tl.int64))
                tl.store(shares + token * K + rank, share * scale)
    rows = first + tl.arange(0, ROWS)
    valid = rows < apart
    x += token * C
    first, second = tiles_of(weight, rows, valid, C, WIDTH), tiles_of(weight, rows + apart, valid, C, WIDTH)
    gate, up = both_times_normalised(first, second, x, norm, inverse_rms(x, eps, C, C_UP), C, WIDTH)
    gate, up = rounded(gate, x), rounded(up, x)
    active = rounded(gate / (1.0 + tl.exp(-gate)), x)
    tl.store(out + rows, (active * up).to(inner.dtype.element_ty), mask=valid)


@triton.jit
def down_kernel(
    inner,
    chosen,
    shares,
    experts,
    shared,
    residual,
    out,
    C: tl.constexpr,
    K: tl.constexpr,
    I: tl.constexpr,  # noqa: E741 - channels inside an expert, as everywhere
    J: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    SHARED_WIDTH: tl.constexpr,
):
    """The experts' second half, weighed and summed, the shared ones, the residual. Programs: ``[C / ROWS, B]``."""
    token = tl.program_id(1)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = rows < C
    inner += token * (K * I + J)
    last = tiles_of(shared, rows, valid, J, SHARED_WIDTH)
    if K > 0:
        tiles = ()
        for rank in tl.static_range(K):
            expert = experts + tl.load(chosen + token * K + rank) * (C * I)
            tiles = tiles + (tiles_of(expert, rows, valid, I, WIDTH),)  # noqa: RUF005
        mixed = tl.zeros([ROWS], tl.float32)
        for rank in tl.static_range(K):
            each = rounded(times(tiles[rank], inner + rank * I, rows, I, WIDTH), inner)
            mixed += each * tl.load(shares + token * K + rank)
        made = rounded(times(last, inner + K * I, rows, J, SHARED_WIDTH), inner)
        made = rounded(rounded(mixed, inner) + made, inner)
    else:
        made = rounded(times(last, inner, rows, J, SHARED_WIDTH), inner)
    at = token * C + rows
    before = tl.load(residual + at, mask=valid, other=0.0).to(tl.float32)
    tl.store(out + at, (before + made).to(out.dtype.element_ty), mask=valid)
