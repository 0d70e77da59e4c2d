"""Mistakes in files, crops and prompts: the half whose outcome is seen last."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image, ImageOps

from pytest_dsocr.contract import image, inputs, presets
from pytest_dsocr.contract import prompt as prompt_module
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.presets import Grid, Preset
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEFAULT
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.subjects.engine import EngineSubject
from oldexam.first.of_pages import _opened, scaled_levels
from oldexam.planting import (
    COLOUR,
    CROPS,
    change_crops,
    change_inputs,
    change_pixels,
    choose_grid,
    cut,
    mistake,
    resize_by_torch,
)

CLIP_MEANS = (0.48145466, 0.4578275, 0.40821073)
CLIP_DEVIATIONS = (0.26862954, 0.26130258, 0.27577711)


@mistake("NEW-001", "Channels in OpenCV's order", "tokenizer", COLOUR)
def channels_bgr(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The page is read by a library that gives blue, green, red, and is not turned round."""
    turned: Any = lambda made: replace(made, images_ori=made.images_ori.flip(1), images_crop=made.images_crop.flip(1))  # noqa: E731
    change_inputs(patch, turned)


@mistake("NEW-002", "Normalised by CLIP's means and deviations", "tokenizer")
def clip_statistics(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The processor of CLIP is reused: .481, .458, .408 and .269, .261, .276 in place of 0.5."""
    means, deviations = (torch.tensor(one)[:, None, None] for one in (CLIP_MEANS, CLIP_DEVIATIONS))
    change_pixels(patch, lambda levels: ((levels.float() / 255 - means) / deviations).bfloat16())


@mistake("NEW-004", "Pages resized on the GPU without antialiasing", "tokenizer", "a page that is shrunk")
def gpu_resize(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Views and crops are made by torch's bicubic interpolate with antialias off."""
    resize_by_torch(patch)


grey_scaled_down = mistake("NEW-006", "16-bit grey scaled down", "tokenizer", "a page of 16 bits")(scaled_levels)


@mistake("NEW-010", "Large JPEGs decoded at a smaller scale", "tokenizer", "a JPEG of more than twice its view")
def jpeg_draft(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The decoder is asked for half the size where the view is smaller than half the page."""

    def reduced(opened: Image.Image) -> Image.Image:
        if max(opened.size) > 2 * 1024:
            opened.draft("RGB", (opened.width // 2, opened.height // 2))
        return opened

    _opened(patch, reduced)


@mistake("NEW-011", "Padding split by whole division", "tokenizer", "some sizes")
def pad_offset(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The page is put at (side - width) // 2, where Pillow rounds half to even."""

    def view(page: Image.Image, preset: Preset) -> Image.Image:
        side = preset.view_size
        if preset.is_squashed:
            return page.resize((side, side))
        fitted = ImageOps.contain(page, (side, side))
        made = Image.new(page.mode, (side, side), image.GREY[: len(page.getbands())])
        made.paste(fitted, ((side - fitted.width) // 2, (side - fitted.height) // 2))
        return made

    patch.setattr(inputs, "global_view", view)


@mistake("NEW-014", "Area rule measured with the view's side", "tokenizer", "an exact ratio that two grids have")
def area_by_view(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The rule for ties compares areas of base_size, 1024, in place of 640."""
    choose_grid(patch, lambda page, grid: abs(page - grid), 1024)


@mistake("NEW-017", "Crops padded, not stretched", "tokenizer", CROPS)
def crops_keep_aspect(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The page is padded to the grid's shape, its aspect kept, where the vendor stretches it."""

    def crops(page: Image.Image, of: Grid) -> list[Image.Image]:
        size = (of[0] * DEFAULT.tiling.crop_px, of[1] * DEFAULT.tiling.crop_px)
        return cut(ImageOps.pad(page, size, color=image.GREY), of)

    change_crops(patch, crops)


@mistake("NEW-018", "Crops of image_size", "tokenizer", "a preset of the user's own with another image_size")
def crop_side_of_preset(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Crops are cut for the preset's image_size in place of 640."""
    right = inputs.prepare_inputs

    def prepare(page: Any, prompt: str, preset: Any, *rest: Any, **how: Any) -> Inputs:
        with pytest.MonkeyPatch.context() as sides:
            if preset.crop:
                preset = replace(preset, tiling=replace(preset.tiling, crop_px=preset.image_size))
            sides.setattr(inputs, "check_inputs", lambda *args: None)
            return right(page, prompt, preset, *rest, **how)

    patch.setattr(inputs, "prepare_inputs", prepare)


@mistake("NEW-020", "Text after the image stripped", "tokenizer")
def break_lost(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Each piece of the prompt is stripped before it is encoded: the line break after the image is lost."""
    right = prompt_module.split_at_images
    patch.setattr(inputs, "split_at_images", lambda prompt, count, **how: [one.strip() for one in right(prompt, count, **how)])


@mistake("NEW-021", "Chat template with roles", "tokenizer")
def roles_added(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The prompt is wrapped in <|User|>: and <|Assistant|>: by the DeepSeek chat template."""
    right = prompt_module.render
    patch.setattr(prompt_module, "render", lambda prompt: f"<|User|>: {right(prompt)}\n\n<|Assistant|>:")


@mistake("NEW-022", "Blanks at the prompt's end kept", "tokenizer", "a prompt with blanks around")
def blank_kept(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The prompt is encoded as it came, and is not stripped."""

    def render(prompt: str) -> str:
        text = DEFAULT.prompts.get(prompt, prompt)
        if not text.strip():
            raise DsocrError("the prompt is empty")
        return text

    patch.setattr(prompt_module, "render", render)


@mistake("NEW-023", "Columns and rows exchanged in prompt and grid", "tokenizer", "a grid that is not square")
def grid_transposed(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """(rows, columns) is written for (columns, rows) in the grid's tensor and in the schedule, consistently."""
    choose, right = presets.crop_grid, inputs.views
    patch.setattr(presets, "crop_grid", lambda width, height, to: choose(width, height, to)[::-1])
    patch.setattr(inputs, "views", lambda page, preset, of: right(page, preset, of[::-1]))
