"""Mistakes in the fusion, and in when a page is looked at, listed before the checks were read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine import pipeline
from pytest_dsocr.engine.fusion import end_rows, mosaic, square
from pytest_dsocr.engine.pipeline import Pipeline, Vision
from pytest_dsocr.subjects.engine import EngineSubject
from oldexam.first.of_prompts import NO_SECOND, TWO_IMAGES
from oldexam.planting import NO_CROPS, mistake


@mistake("HLD-48", "The separator in front where there are no crops", "vision_fusion", NO_CROPS)
def separator_in_front(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """One path for both kinds of pages; where the crops are empty, the separator comes first."""

    def fuse(crops: Tensor | None, page: Tensor, grid: Any, newline: Tensor, separator: Tensor) -> Tensor:
        of_page = end_rows(square(page), newline)
        if crops is None:
            return torch.cat([separator[None], of_page])
        return torch.cat([end_rows(mosaic(crops, grid), newline), of_page, separator[None]])

    patch.setattr(pipeline, "fuse", fuse)


@mistake("HLD-49", "All crops in front of all pages", "vision_fusion", TWO_IMAGES, unseen=NO_SECOND)
def by_kind(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Features of two images are joined by kind, and not image by image."""
    right = Pipeline.vision

    def vision(self: Any, inputs: Inputs) -> list[Vision]:
        made = right(self, inputs)
        if len(made) < 2:
            return made
        pages = [one.page["projector"].shape[1] + int(one.page["projector"].shape[1] ** 0.5) + 1 for one in made]
        crops = [one.vision_fusion[:-count] for one, count in zip(made, pages, strict=True)]
        wholes = [one.vision_fusion[-count:] for one, count in zip(made, pages, strict=True)]
        joined = [torch.cat(crops), torch.cat(wholes)]
        return [Vision(one.crops, one.page, features) for one, features in zip(made, joined, strict=False)]

    patch.setattr(Pipeline, "vision", vision)


@mistake("HLD-50", "Crops dealt by the first image's count", "vision_fusion", TWO_IMAGES, unseen=NO_SECOND)
def first_count(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """One grid is taken for all images of a prompt."""
    right = Pipeline.vision

    def vision(self: Any, inputs: Inputs) -> list[Vision]:
        inputs.images_spatial_crop[:] = inputs.images_spatial_crop[:1].clone()
        return right(self, inputs)

    patch.setattr(Pipeline, "vision", vision)


@mistake("HLD-52", "A blank page not looked at", "vision_fusion", "a page of one colour")
def blank_skipped(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """A page without contrast is taken for none, to save time; the vendor's gate asks for a sum of zero."""
    shown: Any = lambda self: self.prompt_tokens != 1 and bool(self.images_ori.float().std() >= 1e-3)  # noqa: E731
    patch.setattr(Inputs, "has_vision", property(shown))


@mistake("HLD-53", "Vision kept by a page's size and first row", "vision_fusion", "a page of one size and margin")
def kept_vision(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """What is kept of a page is found by its shape and its first row of pixels, which is a white margin."""
    kept: dict[Any, list[Vision]] = {}
    right = Pipeline.vision

    def vision(self: Any, inputs: Inputs) -> list[Vision]:
        row = inputs.images_crop[0, :, 0].float() if len(inputs.images_crop) else inputs.images_ori[0, :, 0].float()
        key = (tuple(inputs.images_crop.shape), tuple(inputs.images_ori.shape), row.cpu().numpy().tobytes())
        made = right(self, inputs)  # all the same, for modules are watched
        return kept.setdefault(key, made) if made else made

    patch.setattr(Pipeline, "vision", vision)
