"""Mistakes in the encoders and the fusion: the half whose outcome is seen last."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine import fusion
from pytest_dsocr.layers import sam
from pytest_dsocr.models.deepseek_ocr import clip
from pytest_dsocr.models.deepseek_ocr.clip import Clip, Embeddings
from pytest_dsocr.engine.fusion import mosaic as right_mosaic
from pytest_dsocr.models.deepseek_ocr.model import DeepseekOCR
from pytest_dsocr.layers.sam import relative_table, resize_grid
from pytest_dsocr.subjects.engine import EngineSubject
from oldexam.first.of_vision import cut_relative, padding_masked
from oldexam.planting import CROPS, core_of, encode_at_most, mistake, resized

CAPTURED = 8
windows_masked = mistake("NEW-028", "Padding of windows masked in attention", "sam")(padding_masked)


@mistake("NEW-030", "Rows and columns of the relative positions exchanged", "sam")
def bias_axes(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """rel_pos_h is used for columns, and rel_pos_w for rows."""

    def position_bias(self: Any, q: Tensor, height: int, width: int) -> Tensor:
        rows, columns = relative_table(self.rel_pos_w, height), relative_table(self.rel_pos_h, width)
        places = q.reshape(-1, height, width, q.shape[-1])
        by_row = torch.einsum("bhwd,hkd->bhwk", places, rows).reshape(*q.shape[:3], height, 1)
        by_column = torch.einsum("bhwd,wkd->bhwk", places, columns).reshape(*q.shape[:3], 1, width)
        return (by_row + by_column).flatten(3)

    patch.setattr(sam.SamAttention, "position_bias", position_bias)


@mistake("NEW-031", "SAM's GELU approximated by tanh", "sam")
def gelu_tanh(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The perceptron uses the tanh approximation, the default in JAX."""
    forward: Any = lambda self, x: self.lin2(F.gelu(self.lin1(x), approximate="tanh"))  # noqa: E731
    patch.setattr(sam.SamMlp, "forward", forward)


@mistake("NEW-032", "SAM's absolute positions resized without antialiasing", "sam", CROPS)
def positions_aliased(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The table is shrunk by plain bicubic."""
    patch.setattr(sam, "resize_grid", lambda table, size: resized(table, size, antialias=False))


relative_cut = mistake("NEW-036", "Relative table cut, not resized", "sam", CROPS)(cut_relative)


@mistake("NEW-038", "At most eight crops at a time", "sam", "a page of nine crops")
def engine_batch(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The engine is built for eight views; a ninth is given the eighth's features."""
    encode_at_most(patch, CAPTURED, lambda made: made[-1:])


def _embedded(self: Embeddings, of_sam: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the class token, the patches, and the positions of both."""
    batch, width, side, _ = of_sam.shape
    table = self.position_embedding.weight
    full = int((len(table) - 1) ** 0.5)
    of_grid = resize_grid(table[1:].view(full, full, width), side).reshape(-1, width)
    return self.class_embedding.expand(batch, 1, -1), of_sam.flatten(2).transpose(1, 2), table[:1], of_grid


@mistake("NEW-039", "CLIP's class token put last", "clip")
def class_last(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The class token follows the patches, and the first token is dropped as before."""

    def forward(self: Embeddings, of_sam: Tensor) -> Tensor:
        token, patches, of_class, of_grid = _embedded(self, of_sam)
        return torch.cat([patches + of_grid, token + of_class], dim=1)

    patch.setattr(Embeddings, "forward", forward)


@mistake("NEW-040", "CLIP's positions added after the first norm", "clip")
def positions_after_norm(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """pre_layrnorm runs before the position embedding is added."""

    def forward(self: Clip, of_sam: Tensor) -> Tensor:
        token, patches, of_class, of_grid = _embedded(self.embeddings, of_sam)
        normal = self.pre_layrnorm(torch.cat([token, patches], dim=1))
        given: Tensor = self.transformer(normal + torch.cat([of_class, of_grid]))
        return given

    patch.setattr(Clip, "forward", forward)


@mistake("NEW-042", "CLIP's positions resized with aligned corners", "clip", CROPS)
def positions_corners(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Bilinear with align_corners=True in place of bicubic with antialias."""
    patch.setattr(
        clip,
        "resize_grid",
        lambda table, size: resized(table, size, mode="bilinear", antialias=False, align_corners=True),
    )


@mistake("NEW-045", "pre_layrnorm not loaded", "clip")
def pre_norm_lost(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The misspelt name matched nothing, and the norm kept weight 1 and bias 0."""
    norm = core_of(subject).vision_model.pre_layrnorm
    patch.setattr(norm.weight, "data", torch.ones_like(norm.weight))
    patch.setattr(norm.bias, "data", torch.zeros_like(norm.bias))


@mistake("NEW-048", "One newline for all rows", "vision_fusion")
def newline_last_row(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Only the last row of a view ends in the newline vector, others in zeros."""
    right = fusion.end_rows

    def end_rows(tokens: Tensor, newline: Tensor) -> Tensor:
        above = right(tokens[:-1], torch.zeros_like(newline))
        return torch.cat([above, right(tokens[-1:], newline)])

    patch.setattr(fusion, "end_rows", end_rows)


@mistake("NEW-049", "Crops not laid out as a page", "vision_fusion", CROPS)
def crops_in_sequence(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Crops' tokens follow one another, and are cut into rows afterwards."""
    patch.setattr(fusion, "mosaic", lambda crops, grid: crops.reshape(right_mosaic(crops, grid).shape))


@mistake("NEW-051", "SAM's features reshaped in place of transposed", "projector")
def sam_flattened_by_channel(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """[c, h, w] is viewed as [h * w, c] without a permutation."""

    def projector(self: Any, of_clip: Tensor, of_sam: Tensor) -> Tensor:
        flat = of_sam.reshape(len(of_sam), -1, of_sam.shape[1])
        made: Tensor = self.project(torch.cat([of_clip[:, 1:], flat], dim=-1))
        return made

    patch.setattr(DeepseekOCR, "projector", projector)


@mistake("NEW-054", "Newline from the vocabulary", "vision_fusion")
def newline_of_text(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Rows end in the embedding of the token for a line break, and not in image_newline."""
    [token] = subject.engine.tokenizer.encode("\n")
    row: Any = lambda self: self.model.embed_tokens.weight[token]  # noqa: E731
    patch.setattr(DeepseekOCR, "newline", property(row))


@mistake("NEW-058", "Vision not gated by the pixel sum", "vision_fusion", "a page whose pixels sum to zero")
def gate_left_out(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """A page whose pixels sum to zero is encoded, where the vendor leaves it out."""
    patch.setattr(Inputs, "has_vision", property(lambda self: self.image_tokens > 0))
