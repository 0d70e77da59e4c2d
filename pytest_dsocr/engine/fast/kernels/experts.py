"""The feed-forward half of a layer: routed experts, read by their ids, and the shared ones."""

from __future__ import annotations

import triton
import triton.language as tl

from pytest_dsocr.engine.fast.kernels.products import both_times_normalised, inverse_rms, rounded, tiles_of, times


@triton.jit
def choice(scores, rank, E: tl.constexpr, E_UP: tl.constexpr, K: tl.constexpr, NORMALISE: tl.constexpr):
    """Give the expert of this rank among the softmax scores ``[E]``, the first of equals first, and its weight."""
    at = tl.arange(0, E_UP)
    raw = tl.load(scores + at, mask=at < E, other=-float("inf"))
    weights = tl.exp(raw - tl.max(raw))
    weights = weights / tl.sum(weights)
    weights = tl.where(at < E, weights, -1.0)
    all_weights, other = weights[None, :], at[None, :]
    before = (all_weights > weights[:, None]) | ((all_weights == weights[:, None]) & (other < at[:, None]))
    ranks = tl.sum(before.to(tl.int32), axis=1)
    own = ranks == rank
    expert = tl.minimum(tl.sum(tl.where(own, at, 0)), E - 1)  # all ranks are 0 if the scores are NaN
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
    """Choose experts, apply the norm, and compute ``silu(gate) * up`` of the chosen and the shared experts.

    Programs: ``[K * I / ROWS + J / ROWS, B]``, each expert's rounded up. An expert's weights are not copied.
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
    """Add the experts' weighed second halves, the shared ones and the residual. Programs: ``[C / ROWS, B]``."""
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
