"""SAM and CLIP captured, a graph for each number and size of views."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.engine.fast import sam
from pytest_dsocr.engine.fast.calls import CapturedCalls
from pytest_dsocr.engine.fast.hooks import Hooks, called
from pytest_dsocr.engine.model import Core


class FastVision:
    """The encoders of one model, whose weights must not move.

    CLIP's module is captured as it is, under autocast, where its residual is in float32. So is SAM's where ``exact`` is
    asked for; else SAM has code of its own, without autocast, as all of it is in the weights' dtype.

    Args:
        core: the model.
        device: where it is.
        pool: what graphs share their memory in.
        exact: compute what the readable session computes, to the bit.
    """

    def __init__(self, core: Core, device: torch.device, pool: Any = None, *, exact: bool = False) -> None:
        self._core, self.exact = core, exact
        self._tables: dict[int, sam.Tables] = {}
        self.attend = attend_for(device)
        """What SAM attends with."""
        self.hooks = Hooks([core.sam_model], [core.sam_model, *sam.blocks_of(core.sam_model)])
        """Of SAM; where there is one inside of a block, the module itself is to be called."""
        self._of_clip = Hooks([core.vision_model], [])
        self._sam = CapturedCalls(core.sam_model if exact else self._encode, pool)
        self._clip = CapturedCalls(core.vision_model, pool)

    def sam(self, pixels: Tensor) -> Tensor:
        """Encode views ``[N, 3, S, S]``: ``[N, c, S/64, S/64]``."""
        if self.hooks.inside or (self.exact and self.hooks.watched):
            return self._core.sam_model(pixels)
        if self.exact:
            return self._sam(pixels).clone()
        side = pixels.shape[-1] // self._core.sam_model.patch_embed.proj.kernel_size[0]
        if side not in self._tables:  # made before anything is captured
            self._tables[side] = sam.Tables.of(self._core.sam_model, side)
        compute = self._encode if self.hooks.watched else self._sam
        with torch.autocast(pixels.device.type, enabled=False):
            return called(self._core.sam_model, compute, pixels).clone()

    def clip(self, features: Tensor) -> Tensor:
        """Encode SAM's features ``[N, c, h, w]``: ``[N, 1 + h * w, c]``."""
        return (self._core.vision_model if self._of_clip.inside else self._clip)(features).clone()

    def _encode(self, pixels: Tensor) -> Tensor:
        side = pixels.shape[-1] // self._core.sam_model.patch_embed.proj.kernel_size[0]
        return sam.encode(self._core.sam_model, pixels, self._tables[side], self.attend)


def attend_for(device: torch.device) -> sam.Attend:
    """Give the Triton kernel on a GPU, where the package is installed; plain torch elsewhere."""
    if device.type != "cuda" or not find_spec("triton"):
        return sam.attend
    from pytest_dsocr.engine.fast import sam_fused

    return sam_fused.attend
