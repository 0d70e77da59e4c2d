"""Pixels of a real page that are made in other ways."""

import torch
from PIL import Image
from torch import Tensor

from pytest_dsocr.contract.inputs import normalise, views
from tests.describe.real import PRESET

SIDE = PRESET.view_size


def rounded(levels: Tensor) -> Tensor:
    """Return pixels of levels that are rounded and clipped."""
    return normalise(levels.clamp(0, 255).round().to(torch.uint8))


def pixels_of(page: Image.Image) -> Tensor:
    """Return the pixels of a view."""
    data = torch.frombuffer(bytearray(page.tobytes()), dtype=torch.uint8)
    return normalise(data.view(1, SIDE, SIDE, 3).permute(0, 3, 1, 2).contiguous())


def through(page: Image.Image) -> Tensor:
    """Return the view of another page."""
    return normalise(views(page, PRESET, (1, 1))[0])


def of_565(levels: Tensor) -> Tensor:
    """Return levels held in 5, 6 and 5 bits, spread over 8 again."""
    cut = [(levels[..., k, :, :].int() >> (8 - bits), bits) for k, bits in enumerate((5, 6, 5))]
    return torch.stack([(one << (8 - bits) | one >> (2 * bits - 8)).float() for one, bits in cut], -3)
