"""SAM and the tower after it captured, a graph for each number and size of views."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from pytest_dsocr.layers.fast import sam
from pytest_dsocr.layers.fast.calls import CapturedCalls
from pytest_dsocr.layers.fast.hooks import Hooks, called
from pytest_dsocr.layers.sam import Sam


class FastVision:
    """The encoders of one model, whose weights must not move.

    The tower's module is captured unchanged, under autocast, where CLIP's residual is in float32. So is SAM's if
    ``exact`` is set. Otherwise SAM has its own code without autocast, as all of it is in the weights' dtype.

    Args:
        sam_model: SAM.
        tower: the module that reads SAM's features.
        device: the model's device.
        pool: the memory pool that graphs share.
        exact: compute what the readable engine computes, to the bit.
    """

    def __init__(
        self, sam_model: Sam, tower: nn.Module, device: torch.device, pool: Any = None, *, exact: bool = False
    ) -> None:
        self._sam_model, self._tower_model, self.exact = sam_model, tower, exact
        self._tables: dict[int, sam.Tables] = {}
        self.attend = attend_for(device)
        """Attention of SAM on this device."""
        self.hooks = Hooks([sam_model], [sam_model, *([] if exact else sam.blocks_of(sam_model))])
        """Hooks on SAM; if one is on an inner module, only calling the SAM module itself runs it."""
        self._in_sam = Hooks([sam_model], [sam_model])
        self._in_tower = Hooks([tower], [tower])
        self._sam = CapturedCalls(sam_model.forward if exact else self._encode, pool)
        self._tower = CapturedCalls(tower.forward, pool)

    def sam(self, pixels: Tensor) -> Tensor:
        """Encode views ``[N, 3, S, S]``: ``[N, c, S/64, S/64]``."""
        module = self._sam_model
        if self.hooks.inside:
            return module(pixels)
        if self.exact:
            return called(module, _own(self._sam), pixels)
        side = pixels.shape[-1] // module.patch_embed.proj.kernel_size[0]
        if side not in self._tables:  # made before anything is captured
            self._tables[side] = sam.Tables.of(module, side)
        with torch.autocast(pixels.device.type, enabled=False):
            return called(module, self._encode if self._in_sam.inside else _own(self._sam), pixels)

    def tower(self, features: Tensor) -> Tensor:
        """Encode SAM's features ``[N, c, h, w]``."""
        module = self._tower_model
        return module(features) if self._in_tower.inside else called(module, _own(self._tower), features)

    def _encode(self, pixels: Tensor) -> Tensor:
        side = pixels.shape[-1] // self._sam_model.patch_embed.proj.kernel_size[0]
        return sam.encode(self._sam_model, pixels, self._tables[side], self.attend)


def _own(compute: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return what a graph computes in memory of the caller's own, as the graph's is written again."""
    return lambda x: compute(x).clone()


def attend_for(device: torch.device) -> sam.Attend:
    """Return the Triton kernel on a GPU if the package is installed, otherwise plain torch."""
    if device.type != "cuda" or not find_spec("triton"):
        return sam.attend
    from pytest_dsocr.layers.fast import sam_fused

    return sam_fused.attend
