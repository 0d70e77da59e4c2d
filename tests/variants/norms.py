"""Norms computed in a wider dtype from their first to their last operation."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.layers.norms import LayerNorm2d, RmsNorm
from pytest_dsocr.records.config import Setup
from tests.variants.changed import Variant, copied, with_forward


def float32_norms(setup: Setup) -> Variant:
    """Compute every norm in float32, the product with its weight included."""
    return _with_norms_in(copied(setup), torch.float32)


def float64_norms(setup: Setup) -> Variant:
    """Compute every norm in float64."""
    return _with_norms_in(copied(setup), torch.float64)


def _with_norms_in(subject: Variant, wide: torch.dtype) -> Variant:
    def rms(norm: RmsNorm) -> Callable[[Tensor], Tensor]:
        def forward(x: Tensor) -> Tensor:
            return F.rms_norm(x.to(wide), norm.weight.shape, norm.weight.to(wide), norm.eps).to(x.dtype)

        return forward

    def layer(norm: nn.LayerNorm | LayerNorm2d) -> Callable[[Tensor], Tensor]:
        def forward(x: Tensor) -> Tensor:
            return F.layer_norm(x.to(wide), norm.weight.shape, norm.weight.to(wide), norm.bias.to(wide), norm.eps)

        return forward

    def last(norm: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
        return lambda x: layer(norm)(x).to(_usual(x))

    def second(norm: LayerNorm2d) -> Callable[[Tensor], Tensor]:
        return lambda x: layer(norm)(x.movedim(1, -1)).movedim(-1, 1).to(_usual(x))

    with_forward(with_forward(subject, RmsNorm, rms), nn.LayerNorm, last)
    return with_forward(subject, LayerNorm2d, second)


def _usual(x: Tensor) -> torch.dtype:
    """Return the dtype of a layer norm's output, which autocast widens."""
    return torch.float32 if torch.is_autocast_enabled(x.device.type) else x.dtype
