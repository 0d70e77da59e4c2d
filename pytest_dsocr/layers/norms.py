"""Norms of channels."""

import torch
from torch import Tensor, nn


class RmsNorm(nn.Module):
    """Scale by the root of the mean square, computed in float32."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + self.eps)
        return self.weight * scaled.to(x.dtype)


class LayerNorm2d(nn.Module):
    """Normalise the channels of ``[B, C, H, W]`` at every position."""

    def __init__(self, channels: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels))
        self.bias = nn.Parameter(torch.empty(channels))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(dim=1, keepdim=True)
        variance = centred.pow(2).mean(dim=1, keepdim=True)
        normal = centred / torch.sqrt(variance + self.eps)
        return normal * self.weight[:, None, None] + self.bias[:, None, None]
