"""Products of a matrix and one token's vector, and the two kernels that need nothing else."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rounded(value, like):
    """Round to the dtype that ``like`` points to, and return float32."""
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
    """Multiply tiles by a vector ``[C]``; each row reads it separately, so no thread waits for another."""
    total = tl.zeros(tiles[0].shape, tl.float32)
    for start in tl.static_range(0, C, WIDTH):
        at = (rows * 0)[:, None] + (start + tl.arange(0, WIDTH))[None, :]
        total += tiles[start // WIDTH].to(tl.float32) * tl.load(x + at, mask=at < C, other=0.0).to(tl.float32)
    return tl.sum(total, axis=1)


@triton.jit
def project_kernel(inputs, weight, residual, out, rows_of, H: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Add a product to the residual. Programs: ``[C / ROWS, B]``."""
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
    """Norm and a product in float32. Programs: ``[R / ROWS, B]``."""
    token = tl.program_id(1)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    valid = rows < rows_of
    x += token * C
    tiles = tiles_of(weight, rows, valid, C, WIDTH)
    made = times_normalised(tiles, x, norm, inverse_rms(x, eps, C, C_UP), C, WIDTH)
    if ROUND:
        made = rounded(made, x)
    tl.store(scores + token.to(tl.int64) * rows_of + rows, made, mask=valid)
