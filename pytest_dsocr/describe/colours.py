"""Colours of views that are exchanged, or sums of the expected colours."""

from collections.abc import Iterator
from itertools import permutations

import torch
from torch import Tensor

from pytest_dsocr.describe import levels
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.pair import EXACT
from pytest_dsocr.describe.views import Views

COLOURS = ("red", "green", "blue")
ROUNDED = 1
"""Difference in levels that resizing and rounding leave."""
LEAST_HUE = 2
"""Deviation of levels across grey and the first hue from which on there are others."""
MOST_FITTED = 20_000
LEAST_PX = 16
LEAST_COLOUR = 16
"""Difference between the levels of a pixel's colours from which on it is not grey."""


def exchanged(views: Views) -> Iterator[Description]:
    """Yield each other order of the colours."""
    for order in permutations(range(3)):
        predicted = views.expected[:, list(order)]
        if order == (2, 1, 0):
            text = "red and blue are exchanged (BGR instead of RGB)"
        else:
            text = f"the colours are in the order {', '.join(COLOURS[one] for one in order)}"
        if order != (0, 1, 2):
            yield Description("colours", text, views.share(predicted), views.actual.numel())


def mixed(views: Views) -> Description | None:
    """Describe colours that are sums of the expected ones, fitted on even lines and verified on odd ones.

    First each colour gets a line of its own. A sum must explain nearly all of the rest of the coloured pixels. Its
    weights are known only if the page has several hues.
    """
    (own, right), (own_left, right_left) = (_few(views, half) for half in (0, 1))
    if not len(right) or not len(right_left):
        return None

    def fitted(k: int, given: list[int]) -> tuple[Tensor, Tensor]:
        fit, test = (torch.cat([one[:, given], torch.ones_like(one[:, :1])], 1) for one in (right, right_left))
        weights = torch.linalg.lstsq(fit, own[:, k : k + 1]).solution[:, 0]
        return weights, ((test @ weights - own_left[:, k]).abs() - ROUNDED).clamp_min(0)

    summed, alone = [fitted(k, [0, 1, 2]) for k in range(3)], [fitted(k, [k]) for k in range(3)]
    left, before = (float(torch.stack([one for _, one in of]).norm()) for of in (summed, alone))
    has_hues = float(torch.linalg.svdvals(right - right.mean(0))[-1]) > LEAST_HUE * len(right) ** 0.5
    is_grey = float((views.actual - views.actual[:, :1]).abs().max()) < levels.OF_ROUNDING
    if left > (1 - EXACT) * before or not before or not (has_hues or is_grey):
        return None
    weights = torch.stack([one for one, _ in summed]).float()
    text = "the page is grey: its colours are equal" if is_grey else "the colours are mixed"
    if has_hues:
        *sums, level = weights[0].tolist()
        words = " + ".join(f"{one:.2f} {colour}" for one, colour in zip(sums, COLOURS, strict=True))
        text += f", {'each' if is_grey else 'red'} is {words}{f' {level:+.1f}' * (abs(level) > ROUNDED)}"
    made = torch.einsum("nchw,dc->ndhw", views.expected, weights[:, :3]) + weights[:, 3, None, None]
    share = views.share(made.clamp(0, levels.LEVELS - 1), slice(1, None, 2))
    return Description("grey" if is_grey else "colours", text, share, len(right_left))


def _few(views: Views, half: int) -> tuple[Tensor, Tensor]:
    """Return pixels ``[P, 3]`` of both sides, of every other line: as many grey ones as coloured ones, or none.

    A pixel counts if the subject's levels are not cut off.
    """
    own, right = (one[..., half::2, :].movedim(1, -1).reshape(-1, 3) for one in (views.actual, views.expected))
    coloured = right.amax(1) - right.amin(1) > LEAST_COLOUR
    is_whole = (own.amin(1) > 0) & (own.amax(1) < levels.LEVELS - 1)
    sets = [(one & is_whole).nonzero().flatten() for one in (coloured, ~coloured)]
    count = min(len(sets[0]), MOST_FITTED) if len(sets[0]) >= LEAST_PX else 0
    places = torch.cat([one[:: max(1, len(one) // count)][:count] for one in sets]) if count else sets[0][:0]
    return own[places].double(), right[places].double()
