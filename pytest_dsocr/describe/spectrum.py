"""Pictures compared by frequencies: a shift, a filter, and whether one is smoother or sharper than the other."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.describe.description import Description

SIDE = 5
"""Side of the fitted filter in pixels."""
BANDS = ((0.125, 0.25), (0.25, 0.375), (0.375, 0.5))
"""Ranges of frequencies, in cycles for each pixel."""
ALIKE = 0.05
"""Largest change of a band's power that counts as none."""
MOST_PIXELS = 400_000


def shift(actual_HW: Tensor, expected_HW: Tensor) -> tuple[int, int]:
    """Return by how many pixels a picture is moved down and to the right, by phase correlation."""
    own, right = (torch.fft.rfft2((one - one.mean()).double()) for one in (actual_HW, expected_HW))
    cross = own * right.conj()
    surface = torch.fft.irfft2(cross / cross.abs().clamp_min(1e-9 * float(cross.abs().max())), s=actual_HW.shape)
    height, width = actual_HW.shape
    down, across = divmod(int(surface.argmax()), width)
    return (down + height // 2) % height - height // 2, (across + width // 2) % width - width // 2


def filtered(actual: Tensor, expected: Tensor) -> Description | None:
    """Describe a filter of neighbouring pixels, fitted on even lines and verified on odd ones, ``[N, 3, H, W]``."""
    first = int((actual - expected).abs().sum(dim=(1, 2, 3)).argmax())
    own, right = actual[first].mean(0), expected[first].mean(0)
    rim = SIDE // 2
    if min(own.shape) < 4 * SIDE:
        return None
    around = F.unfold(right[None, None], SIDE)[0].T.double()
    inside = own[rim:-rim, rim:-rim].double()
    lines = torch.arange(len(inside)).repeat_interleave(inside.shape[1])
    step = max(1, len(around) // MOST_PIXELS)
    fit, test = (torch.nonzero(lines % 2 == half).flatten()[::step] for half in (0, 1))
    flat = inside.flatten()
    kernel = torch.linalg.lstsq(around[fit], flat[fit][:, None]).solution
    left = (around[test] @ kernel)[:, 0] - flat[test]
    before = around[test][:, SIDE * SIDE // 2] - flat[test]
    share = max(0.0, 1 - float(left.norm() / before.norm())) if before.any() else 0.0
    weights = kernel.view(SIDE, SIDE)
    centre = float(weights[rim, rim])
    x, y = (float((weights.sum(dim) * torch.arange(-rim, rim + 1)).sum()) for dim in (0, 1))
    moved = f", moved by (x, y) = ({-x:+.2f}, {-y:+.2f}) px" * (max(abs(x), abs(y)) > 0.05)
    kind = "smoother" if centre < 1 else "sharper"
    text = f"the picture is {kind}: each pixel keeps {centre:.2f} of itself, the rest is its neighbours'{moved}"
    return Description("filtered", text, share, len(test))


def compared(actual: Tensor, expected: Tensor) -> str:
    """Say which frequencies have more or less power than expected, ``[N, 3, H, W]``."""
    ratios = [_power(actual, band) / max(_power(expected, band), 1e-12) for band in BANDS]
    shown = ", ".join(f"{one:.2g}" for one in ratios)
    words = "of other sharpness"
    if all(abs(one - 1) < ALIKE for one in ratios):
        words = "as sharp"
    elif max(ratios) < 1 + ALIKE:
        words = "smoother"
    elif min(ratios) > 1 - ALIKE:
        words = "sharper, or aliased"
    return f"the picture is {words}: {shown} times the expected power at low, middle and high frequencies"


def _power(views: Tensor, band: tuple[float, float]) -> float:
    height, width = views.shape[-2:]
    power = torch.fft.rfft2(views.mean(1)).abs().pow(2).sum(0)
    radius = (torch.fft.fftfreq(height)[:, None].pow(2) + torch.fft.rfftfreq(width)[None].pow(2)).sqrt()
    return float(power[(radius >= band[0]) & (radius < band[1])].sum())
