"""The vision towers as one step from pixels to tokens, on a GPU replayed from CUDA graphs.

Training is bound by the launching of small kernels, most of them here; a graph launches a whole pass at once.

Shapes: N views, S their side in pixels, C hidden channels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

import torch
from torch import Tensor, nn

from ci.training.generator import GRIDS
from pytest_dsocr.contract.inputs import normalise
from pytest_dsocr.contract.presets import CROP_PX, PRESETS, crop_count
from pytest_dsocr.engine.model import DeepseekOCR

Encode = Callable[[Tensor], Tensor]
"""From uint8 views ``[N, 3, S, S]`` to the tokens that the decoder gets, ``[N, (S / 64) ** 2, C]``."""


class Encoder(nn.Module):
    """Views ``[N, 3, S, S]`` of pixels in -1 to 1, through SAM, CLIP and projector: ``[N, (S / 64) ** 2, C]``."""

    def __init__(self, model: DeepseekOCR) -> None:
        super().__init__()
        core = model.model
        self.sam, self.clip, self.projector = core.sam_model, core.vision_model, core.projector

    def forward(self, pixels: Tensor) -> Tensor:
        """Encode."""
        sam = self.sam(pixels)
        clip = self.clip(sam)
        tokens: Tensor = self.projector(torch.cat([clip[:, 1:], sam.flatten(2).transpose(1, 2)], dim=-1))
        return tokens


def encode_levels(model: DeepseekOCR) -> Encode:
    """Give what encodes uint8 views ``[N, 3, S, S]``, kernel by kernel."""
    encoder = Encoder(model)
    return lambda levels: encoder(normalise(levels).to(model.dtype))


def encode_from_graphs(model: DeepseekOCR, batch_pages: int) -> Encode:
    """Record a graph, backward pass included, for every shape of views in training; give what replays them.

    It must be called before another thread uses the GPU.
    """
    recorded = {shape: _record(model, shape) for shape in sorted(view_shapes(batch_pages))}
    return lambda levels: recorded[tuple(levels.shape)](normalise(levels).to(model.dtype))


def _record(model: DeepseekOCR, shape: tuple[int, ...]) -> Encode:
    """Give what replays the encoder on pixels of ``shape``."""
    sample = torch.randn(shape, device=model.device, dtype=model.dtype)
    # CLIP's own patch embedding is never used.
    return cast("Encode", torch.cuda.make_graphed_callables(Encoder(model), (sample,), allow_unused_input=True))


def view_shapes(batch_pages: int) -> set[tuple[int, ...]]:
    """Give every shape in which a batch's views can come."""
    sides: Iterable[tuple[int, int]] = (
        *((1, preset.view_size) for preset in PRESETS.values()),
        *((crop_count(grid), CROP_PX) for grid in GRIDS if crop_count(grid)),
    )
    return {(batch_pages * views, 3, side, side) for views, side in sides}
