"""Mistakes in the encoders and the fusion: the half whose outcome those who write checks and hints may see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine import fusion, pipeline, sam
from pytest_dsocr.engine.clip import Embeddings, Transformer
from pytest_dsocr.engine.pipeline import Pipeline, Vision
from pytest_dsocr.engine.sam import LayerNorm2d, resize_grid
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.held_out.of_prompts import TWO_IMAGES
from tests.faults.held_out.of_vision import cut_positions, same_padding
from tests.faults.of_clip import interleaved_heads
from tests.faults.open_half import mistake
from tests.faults.registry import CROPS, core_of, run_instead


@mistake("NEW-029", "Relative positions from the scaled query", "sam")
def bias_from_scaled_query(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The bias is computed from q / sqrt(d), as q was scaled in place."""
    right = sam.Attention._position_bias
    patch.setattr(sam.Attention, "_position_bias", lambda self, q, *size: right(self, q * q.shape[-1] ** -0.5, *size))


@mistake("NEW-033", "LayerNorm's default epsilon", "sam")
def norm_epsilon(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """SAM's block norms have 1e-5 in place of 1e-6."""
    for block in core_of(subject).sam_model.blocks:
        for norm in (block.norm1, block.norm2):
            patch.setattr(norm, "eps", 1e-5)


@mistake("NEW-034", "Global layers counted from one", "sam")
def global_layers_shifted(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The layers with global attention are one earlier."""
    blocks: list[Any] = list(core_of(subject).sam_model.blocks)
    windows = [block.window for block in blocks]
    for block, window in zip(blocks, [*windows[1:], windows[0]], strict=True):
        patch.setattr(block, "window", window)


@mistake("NEW-035", "Neck normalised over the whole view", "sam")
def neck_norm_whole(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """LayerNorm2d is ported as a group norm of one group: over channels and positions."""
    patch.setattr(LayerNorm2d, "forward", lambda self, x: F.group_norm(x, 1, self.weight, self.bias, self.eps))


mistake("NEW-037", "Strided convolutions with SAME padding", "sam")(same_padding)


@mistake("NEW-041", "CLIP's last layer left out", "clip")
def penultimate(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Features of the layer before the last are taken, as LLaVA does."""

    def forward(self: Transformer, x: Tensor) -> Tensor:
        for layer in self.layers:
            before, x = x, layer(x)
        return before

    patch.setattr(Transformer, "forward", forward)


mistake("NEW-043", "CLIP's fused queries, keys and values split head by head", "clip")(interleaved_heads)


@mistake("NEW-044", "Class position taken from the end", "clip")
def positions_off_by_one(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The grid's positions are weight[:-1], and the class token's is weight[-1]."""

    def forward(self: Embeddings, of_sam: Tensor) -> Tensor:
        batch, width, side, _ = of_sam.shape
        tokens = torch.cat([self.class_embedding.expand(batch, 1, -1), of_sam.flatten(2).transpose(1, 2)], dim=1)
        table = self.position_embedding.weight
        full = int((len(table) - 1) ** 0.5)
        of_grid = resize_grid(table[:-1].view(full, full, width), side).reshape(-1, width)
        return tokens + torch.cat([table[-1:], of_grid])

    patch.setattr(Embeddings, "forward", forward)


mistake("NEW-046", "CLIP's positions of small views cut off", "clip", CROPS)(cut_positions)


@mistake("NEW-047", "Projector's bias lost", "projector")
def projector_bias(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The layer was exported without its bias."""
    layer = core_of(subject).projector.layers
    run_instead(patch, layer, lambda x: F.linear(x, layer.weight))


@mistake("NEW-050", "Separator between crops and page", "vision_fusion", CROPS)
def separator_between(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The separator stands after the crops, and not at the end."""

    def fuse(crops: Tensor | None, page: Tensor, grid: tuple[int, int], newline: Tensor, separator: Tensor) -> Tensor:
        of_page = fusion.end_rows(fusion.square(page), newline)
        if crops is None:
            return torch.cat([of_page, separator[None]])
        return torch.cat([fusion.end_rows(fusion.mosaic(crops, grid), newline), separator[None], of_page])

    patch.setattr(pipeline, "fuse", fuse)


@mistake("NEW-052", "Grid's sides exchanged in the mosaic", "vision_fusion", "a grid that is not square")
def mosaic_transposed(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Rows are taken for columns when crops are laid out, and the rows of tokens are cut at the right width."""
    right = fusion.mosaic

    def mosaic(crops: Tensor, grid: tuple[int, int]) -> Tensor:
        made = right(crops, grid[::-1])
        height, width, channels = made.shape
        return made.reshape(height * grid[1] // grid[0], width * grid[0] // grid[1], channels)

    patch.setattr(fusion, "mosaic", mosaic)


@mistake("NEW-053", "Features sent as float16", "vision_fusion")
def features_half(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The vision server sends features in float16, and the decoder's widens them again."""
    right = fusion.fuse

    def fuse(*parts: Any) -> Tensor:
        features = right(*parts)
        return features.half().to(features.dtype)

    patch.setattr(pipeline, "fuse", fuse)


@mistake("NEW-056", "Every image starts at the first place", "prefill", TWO_IMAGES)
def images_restart(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """With two images, the second's features are written over the first's."""
    right = Pipeline.vision

    def vision(self: Any, inputs: Inputs) -> list[Vision]:
        made = right(self, inputs)
        if len(made) < 2:
            return made
        first, last = made[0].vision_fusion, made[-1].vision_fusion
        kept = min(len(first), len(last))
        over = torch.cat([last[:kept], first[kept:]])
        image = self.model.embed(inputs.input_ids[:, inputs.images_seq_mask[0]])[0]
        return [replace(made[0], vision_fusion=over), replace(made[-1], vision_fusion=image[-len(last) :])]

    patch.setattr(Pipeline, "vision", vision)


@mistake("NEW-057", "Encoder cache keyed by shape", "vision_fusion", "a second page of one shape")
def features_by_shape(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Features are kept by grid and sizes, so that the next page of the same shape gets them."""
    kept: dict[Any, list[Vision]] = {}
    right = Pipeline.vision

    def vision(self: Any, inputs: Inputs) -> list[Vision]:
        made = right(self, inputs)  # all the same, for modules are watched
        shape = (
            tuple(inputs.images_crop.shape),
            tuple(inputs.images_ori.shape),
            *inputs.images_spatial_crop.tolist()[0],
        )
        return kept.setdefault(shape, made) if made else made

    patch.setattr(Pipeline, "vision", vision)
