"""Position tables made for one grid, resized to another as the vendor does it: in float32, then cast back."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def resize_grid(table_HWC: Tensor, size: int) -> Tensor:
    """Resize a square table ``[H, H, C]`` to ``[size, size, C]``: bicubic, antialiased."""
    if table_HWC.shape[0] == size:
        return table_HWC
    planes = table_HWC.float().permute(2, 0, 1)[None]
    resized = F.interpolate(planes, size=(size, size), mode="bicubic", antialias=True, align_corners=False)
    return resized[0].permute(1, 2, 0).to(table_HWC.dtype)


def resize_line(table_LC: Tensor, length: int) -> Tensor:
    """Resize a table ``[L, C]`` of relative positions to ``[length, C]``: linear, half-pixel centres."""
    if table_LC.shape[0] == length:
        return table_LC
    line = table_LC.float().T[None]
    return F.interpolate(line, size=length, mode="linear")[0].T.to(table_LC.dtype)


def relative_table(table_LC: Tensor, size: int) -> Tensor:
    """Look up every pair of ``size`` positions: ``[size, size, C]``, query first."""
    table = resize_line(table_LC, 2 * size - 1)
    at = torch.arange(size, device=table.device)
    return table[at[:, None] - at[None, :] + size - 1]
