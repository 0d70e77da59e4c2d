"""Resizing by a kernel, written as a port without Pillow and torch writes it: one matrix of weights for each axis."""

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

Kernel = Callable[[Tensor], Tensor]
"""Weight of a value at a distance, in steps of the kernel."""


def cubic(x: Tensor, a: float, b: float = 0.0) -> Tensor:
    """Return the weights of Keys' cubic kernel with the slope ``a``, or of a smoother one with ``b``.

    Pillow has a = -0.5, torch without antialias and OpenCV -0.75. Mitchell's kernel has a = b = 1/3 in his notation,
    that is a = -1/3 here.
    """
    x, c = x.abs(), -a
    near = (12 - 9 * b - 6 * c) * x**3 + (-18 + 12 * b + 6 * c) * x**2 + 6 - 2 * b
    far = (-b - 6 * c) * x**3 + (6 * b + 30 * c) * x**2 + (-12 * b - 48 * c) * x + 8 * b + 24 * c
    return torch.where(x < 1, near, torch.where(x < 2, far, 0)) / 6


def triangle(x: Tensor) -> Tensor:
    """Return the weights of the linear kernel."""
    return (1 - x.abs()).clamp_min(0)


@lru_cache(maxsize=8)
def weights(before: int, after: int, kernel: Kernel, *, antialias: bool = False, half_pixel: bool = True) -> Tensor:
    """Return the weights ``[after, before]`` that resize an axis.

    Args:
        before: the axis's length.
        after: its new length.
        kernel: weights by distance.
        antialias: whether the kernel is widened where the axis gets shorter.
        half_pixel: whether a value is in the middle of its pixel, and not at its beginning.
    """
    step, half = before / after, 0.5 if half_pixel else 0.0
    at = (torch.arange(after, dtype=torch.float64) + half) * step - half
    found = kernel((torch.arange(before) - at[:, None]) / (max(step, 1.0) if antialias else 1.0))
    return (found / found.sum(1, keepdim=True)).float()


def resampled(planes: Tensor, size: tuple[int, int], kernel: Kernel, **how: bool) -> Tensor:
    """Resize ``[C, H, W]`` to a height and a width in one pass, without rounding in between."""
    rows, columns = (weights(n, m, kernel, **how) for n, m in zip(planes.shape[1:], size, strict=True))
    return rows.to(planes.device) @ planes.float() @ columns.to(planes.device).T
