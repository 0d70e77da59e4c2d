"""Pictures compared by frequencies: a shift, a filter, and whether one is smoother or sharper than the other."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.describe.description import Description

SIDE = 5
"""Side of the fitted filter in pixels."""
BANDS = ((0.125, 0.25), (0.25, 0.375), (0.375, 0.5))
"""Ranges of frequencies, in cycles for each pixel."""
LOWEST = (0.01, 0.06)
"""Range that no filter of small details changes."""
COHERENT = 0.8
"""Least correlation of low frequencies of the same picture."""
EDGE = 8
"""Difference of a level from the mean around it from which on there is contrast."""
HALF = 0.5
ALIKE = 0.05
"""Largest change of a band's amplitude that counts as none."""
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
    """Describe a filter of neighbouring pixels, ``[N, 3, H, W]``.

    The filter is fitted on even lines of the view that differs most, and verified on odd lines of all views.
    """
    first = int((actual - expected).abs().sum(dim=(1, 2, 3)).argmax())
    own, right = (one.mean(1, keepdim=True) for one in (actual, expected))
    rim = SIDE // 2
    if min(own.shape[-2:]) < 4 * SIDE:
        return None
    around = F.unfold(right[first : first + 1], SIDE)[0].T.double()
    inside = own[..., rim:-rim, rim:-rim]
    lines = torch.arange(inside.shape[-2]).repeat_interleave(inside.shape[-1])
    fit = torch.nonzero(lines % 2 == 0).flatten()[:: max(1, len(around) // MOST_PIXELS)]
    kernel = torch.linalg.lstsq(around[fit], inside[first].flatten().double()[fit][:, None]).solution.view(SIDE, SIDE)
    made = F.conv2d(right, kernel[None, None].float())
    left, before = ((one - inside)[..., 1::2, :].norm() for one in (made, right[..., rim:-rim, rim:-rim]))
    share = max(0.0, 1 - float(left / before)) if before else 0.0
    radius = (torch.fft.fftfreq(SIDE)[:, None].pow(2) + torch.fft.rfftfreq(SIDE)[None].pow(2)).sqrt()
    gain = float(torch.fft.rfft2(kernel).abs()[radius >= BANDS[0][1]].mean())
    if abs(gain - 1) < ALIKE:
        return None
    centre = float(kernel[rim, rim])
    x, y = (float((kernel.sum(dim) * torch.arange(-rim, rim + 1)).sum()) for dim in (0, 1))
    moved = f", moved by (x, y) = ({-x:+.2f}, {-y:+.2f}) px" * (max(abs(x), abs(y)) > 0.05)
    kind = "smoother" if gain < 1 else "sharper"
    text = f"the picture is {kind}: each pixel keeps {centre:.2f} of itself, the rest is its neighbours'{moved}"
    return Description("filtered", text, share, inside.numel() // 2)


def compared(actual: Tensor, expected: Tensor) -> str:
    """Say whether a picture is smoother or sharper than expected, ``[N, 3, H, W]``; empty if its colours disagree.

    A smoother picture has its own high frequencies weaker, a sharper one stronger: the gain falls or rises. Power
    without a gain is something else that is added, as by few levels.
    """
    kinds = {_kind(actual[:, k], expected[:, k]) for k in range(actual.shape[1])}
    if len(kinds) != 1 or not (words := kinds.pop()):
        return ""
    gains = ", ".join(f"{_gain(actual, expected, band)[0]:.2g}" for band in BANDS)
    return f"the picture is {words}: {gains} times the expected one at low, middle and high frequencies"


def _kind(actual: Tensor, expected: Tensor) -> str:
    """Return how one colour's frequencies are changed; empty if in no single way.

    A filter changes all places with contrast, and keeps the lowest frequencies. A picture that is moved, sheared or
    replaced has its own frequencies still, but little of the expected ones.
    """
    edges = (expected - F.avg_pool2d(expected, 3, 1, 1)).abs() > EDGE
    if not edges.any() or float(((actual - expected).abs() > 1)[edges].float().mean()) < HALF:
        return ""
    bands = [_gain(actual[:, None], expected[:, None], band) for band in (LOWEST, *BANDS)]
    (lowest, _), (low, coherence), (middle, _), (high, _) = bands
    if abs(lowest - 1) > ALIKE or coherence < COHERENT:
        return ""
    if max(abs(one - 1) for one in (low, middle, high)) < ALIKE:
        return "as sharp"
    if low < 1 + ALIKE and low - middle > ALIKE / 2 and middle - high > 0:
        return "smoother"
    if low > 1 - ALIKE and middle - low > ALIKE / 2 and high - middle > 0:
        return "sharper, or aliased"
    return ""


def _gain(actual: Tensor, expected: Tensor, band: tuple[float, float]) -> tuple[float, float]:
    """Return the factor of the expected amplitudes that comes nearest to the subject's in a band, and the coherence."""
    height, width = actual.shape[-2:]
    own, right = (torch.fft.rfft2(views.mean(1)) for views in (actual, expected))
    radius = (torch.fft.fftfreq(height)[:, None].pow(2) + torch.fft.rfftfreq(width)[None].pow(2)).sqrt()
    inside = (radius >= band[0]) & (radius < band[1])
    both, *power = (one.sum(0)[inside].sum() for one in ((own * right.conj()).real, own.abs() ** 2, right.abs() ** 2))
    return float(both / power[1].clamp_min(1e-12)), float(both / (power[0] * power[1]).sqrt().clamp_min(1e-12))
