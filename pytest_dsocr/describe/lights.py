"""Spaces of brightness in which pages are resized by mistake."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from pytest_dsocr.describe.levels import LEVELS

ToLevels = Callable[[Tensor], Tensor]


def _same(values: Tensor) -> Tensor:
    return values


def _limited(levels: Tensor) -> Tensor:
    return levels.clamp(0, LEVELS - 1)


def _whole(levels: Tensor) -> Tensor:
    return _limited(levels).round()


def _in_bfloat16(levels: Tensor) -> Tensor:
    """Return levels whose pixels are rounded to bfloat16."""
    return (((levels / 255 - 0.5) / 0.5).bfloat16().float() + 1) * 127.5


def _finished(limited: ToLevels, cast: ToLevels, levels: Tensor) -> Tensor:
    return cast(limited(levels))


class Light(NamedTuple):
    """A space of brightness in which pages are resized by mistake, between 0 and 1."""

    text: str
    of_level: Callable[[Tensor], Tensor]
    to_level: Callable[[Tensor], Tensor]
    finished: ToLevels = _whole
    """Rounds and limits the levels."""


def _power(text: str, gamma: float) -> Light:
    return Light(text, lambda x: x**gamma, lambda x: x.clamp_min(0) ** (1 / gamma))


LIGHTS = (
    Light(
        "linear light: sRGB's curve is undone before, and applied again after",
        lambda x: torch.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4),
        lambda x: torch.where(x <= 0.0031308, x * 12.92, 1.055 * x.clamp_min(0) ** (1 / 2.4) - 0.055),
    ),
    *(_power(f"a power of {gamma:g} of its levels", gamma) for gamma in (1.8, 2.0, 2.2, 2.4, 1 / 2.2)),
    Light("floats, which are rounded once, after both passes", _same, _same),
    *(
        Light(f"floats, which are {words}", _same, _same, partial(_finished, limited, cast))
        for words, limited in (
            ("neither rounded to levels nor limited to 0 to 255", _same),
            ("limited to 0 to 255, and not rounded to levels", _limited),
        )
        for cast in (_in_bfloat16, _same)
    ),
)
