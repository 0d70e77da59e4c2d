"""Mistakes in the fusion, and in how features go into the prompt."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.engine import fusion, pipeline
from pytest_dsocr.engine.fusion import end_rows, mosaic, square
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.of_sam import GARBAGE, LITTLE
from tests.faults.registry import CROPS, core_of, fault

Grid = tuple[int, int]
STORED = "the checkpoint's vectors are stored in bfloat16, so that rounding them changes nothing"


def _fused(patch: pytest.MonkeyPatch, fuse: Any) -> None:
    patch.setattr(pipeline, "fuse", fuse)


def _around(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the fused features ``[tokens, C]``."""
    right = fusion.fuse
    _fused(patch, lambda *args: change(right(*args)))


@fault("FUS-01", "The whole page in front of its crops", "vision_fusion", LITTLE, "the order", CROPS)
def page_first(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The config's global_view_pos of head suggests it."""

    def fuse(crops: Tensor | None, page: Tensor, grid: Grid, newline: Tensor, separator: Tensor) -> Tensor:
        of_crops = [] if crops is None else [end_rows(mosaic(crops, grid), newline)]
        return torch.cat([end_rows(square(page), newline), *of_crops, separator[None]])

    _fused(patch, fuse)


@fault("FUS-02", "Crop after crop in place of the page's rows", "vision_fusion", GARBAGE, "laid out as the page", CROPS)
def no_mosaic(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The permutation between two reshapes is missing."""

    def lay_out(crops: Tensor, grid: Grid) -> Tensor:
        columns, rows = grid
        side = int(crops.shape[-2] ** 0.5)
        return crops.reshape(rows * side, columns * side, -1)

    patch.setattr(fusion, "mosaic", lay_out)


@fault("FUS-04", "Newlines in front of their rows", "vision_fusion", LITTLE, "newline behind it|newlines behind")
def newlines_in_front(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The order of two arguments of a concatenation."""

    def begin_rows(tokens: Tensor, newline: Tensor) -> Tensor:
        begins = newline.expand(*tokens.shape[:-2], 1, -1)
        return torch.cat([begins, tokens], dim=-2).flatten(-3, -2)

    patch.setattr(fusion, "end_rows", begin_rows)


@fault("FUS-W1", "The separator between crops and page", "vision_fusion", LITTLE, "separator last", CROPS)
def separator_between(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Its name says that it separates the views."""

    def fuse(crops: Tensor | None, page: Tensor, grid: Grid, newline: Tensor, separator: Tensor) -> Tensor:
        of_page = end_rows(square(page), newline)
        if crops is None:
            return torch.cat([of_page, separator[None]])
        return torch.cat([end_rows(mosaic(crops, grid), newline), separator[None], of_page])

    _fused(patch, fuse)


@fault("FUS-W2", "The separator not loaded", "vision_fusion", LITTLE, "separator.*(weight|loaded|row)")
def no_separator(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """view_seperator, misspelt in the checkpoint, was looked for under its right spelling."""
    vector = core_of(subject).view_seperator
    patch.setattr(vector, "data", torch.zeros_like(vector))


@fault("FUS-W3", "The newline not loaded", "vision_fusion", LITTLE, "newline.*(weight|loaded)")
def no_newline(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Its parameter is not in the loader's table."""
    vector = core_of(subject).image_newline
    patch.setattr(vector, "data", torch.zeros_like(vector))


@fault("FUS-W4", "Newline and separator exchanged", "vision_fusion", LITTLE, "newline.*separator")
def exchanged_vectors(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Two arguments of one type were given in the wrong order."""
    right = fusion.fuse
    _fused(patch, lambda crops, page, grid, newline, separator: right(crops, page, grid, separator, newline))


@fault("FUS-W5", "Columns and rows of crops exchanged", "vision_fusion", GARBAGE, "laid out as the page", CROPS)
def exchanged_grid(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The grid is taken for rows and columns."""
    right = fusion.mosaic

    def lay_out(crops: Tensor, grid: Grid) -> Tensor:
        columns, rows = grid
        laid = right(crops, (rows, columns))
        return laid.reshape(
            laid.shape[-2] * laid.shape[-3] // (columns * int(crops.shape[-2] ** 0.5)), -1, laid.shape[-1]
        )

    patch.setattr(fusion, "mosaic", lay_out)


@fault("FUS-W6", "Crops in the opposite order", "vision_fusion", GARBAGE, "the order", CROPS)
def reversed_crops(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """They are taken from the end of a list."""
    right = fusion.mosaic
    patch.setattr(fusion, "mosaic", lambda crops, grid: right(crops.flip(-3), grid))


@fault("FUS-W7", "The page's rows and columns exchanged", "vision_fusion", GARBAGE, "row by row|row of pixels by row")
def transposed_page(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Height and width are exchanged in one view."""
    right = fusion.square
    patch.setattr(fusion, "square", lambda tokens: right(tokens).transpose(-3, -2))


@fault("FUS-06", "Newlines in bfloat16", "vision_fusion", LITTLE, "dtype", equivalent=STORED)
def rounded_newline(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The two vectors are loaded apart, in another dtype."""
    for vector in (core_of(subject).image_newline, core_of(subject).view_seperator):
        patch.setattr(vector, "data", vector.data.bfloat16().float())


@fault("SCT-03", "One feature too many in front", "vision_fusion", GARBAGE, "surplus|every crop|number|as many|order")
def surplus_row(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A row comes twice, and the last one falls off: scattering takes as many as there are places."""
    _around(patch, lambda fused: torch.cat([fused[:1], fused])[:-1])


@fault("FUS-W8", "The crops left out", "vision_fusion", LITTLE, "every crop|crops", CROPS)
def crops_left_out(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Zeros stand at the places of the crops: their features went to a copy."""
    right = fusion.mosaic
    patch.setattr(fusion, "mosaic", lambda crops, grid: torch.zeros_like(right(crops, grid)))


def _scattered(patch: pytest.MonkeyPatch, change: Any) -> None:
    right = fusion.scatter
    patch.setattr(pipeline, "scatter", lambda embeds, mask, features, n: change(right, embeds, mask, features, n))


@fault("SCH-10", "No features in the prompt", "prefill", "fluent nonsense", "image token's embedding")
def not_scattered(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """What the scatter returns is not used."""
    _scattered(patch, lambda right, embeds, mask, features, n: embeds)


@fault("SCT-W1", "Features one place late", "prefill", LITTLE, "mask's places")
def shifted_features(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """BOS is not counted where the features are put."""
    _scattered(patch, lambda right, embeds, mask, features, n: right(embeds, mask.roll(1, 1), features, n))


@fault("SCT-W2", "Features scaled as embeddings are elsewhere", "prefill", GARBAGE, "scale|factor")
def scaled_features(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Another model multiplies them by the root of the width."""
    width = core_of(subject).image_newline.shape[0] ** 0.5
    _scattered(patch, lambda right, embeds, mask, features, n: right(embeds, mask, features * width, n))


@fault("SCT-W3", "Features added to the image token's embedding", "prefill", LITTLE, "image token's embedding")
def added_features(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Added in place of written."""
    _scattered(
        patch, lambda right, embeds, mask, features, n: embeds + right(torch.zeros_like(embeds), mask, features, n)
    )
