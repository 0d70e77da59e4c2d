"""Mistakes in reading a page and in cutting it, listed before the checks were read."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from pytest_dsocr.contract import image, inputs, presets
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEFAULT
from pytest_dsocr.subjects.engine import EngineSubject
from oldexam.planting import (
    BICUBIC,
    CROPS,
    TALL,
    change_crops,
    change_inputs,
    change_pixels,
    choose_grid,
    mistake,
    resize_by_torch,
)

SHRUNK, NOTHING = "a page much larger than its views", "nothing"
TURNS = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_270, 8: Image.Transpose.ROTATE_90}


def _opened(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change an image between its opening and its conversion."""
    upright: Any = lambda open_image: ImageOps.exif_transpose(change(open_image())).convert("RGB")  # noqa: E731
    patch.setattr(image, "_upright_rgb", upright)


def _resized(patch: pytest.MonkeyPatch, resize: Any) -> None:
    right = Image.Image.resize
    patch.setattr(Image.Image, "resize", lambda self, size, *args, **options: resize(right, self, size))


def _letterboxed(patch: pytest.MonkeyPatch, whole: Any, offset: Any) -> None:
    """Pad by own arithmetic: ``whole`` makes pixels of a side's length, ``offset`` the bar in front of the page.

    The contract makes views of single channels as well.
    """

    def view(page: Image.Image, preset: Preset) -> Image.Image:
        side = preset.view_size
        if preset.is_squashed:
            return page.resize((side, side))
        scale = side / max(page.size)
        width, height = (whole(length * scale) for length in page.size)
        made = Image.new(page.mode, (side, side), image.GREY[: len(page.getbands())])
        made.paste(page.resize((width, height)), (offset(side - width), offset(side - height)))
        return made

    patch.setattr(inputs, "global_view", view)


@mistake("HLD-01", "A JPEG decoded at a reduced scale", "tokenizer", "a large JPEG")
def draft(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The decoder's own scaling is used to save time, where the page is larger than its views."""

    def reduced(opened: Image.Image) -> Image.Image:
        opened.draft("RGB", (1280, 1280))
        return opened

    _opened(patch, reduced)


@mistake("HLD-02", "A large page shrunk first", "tokenizer", "a page above 2,000 px")
def shrunk_first(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """A guard of the memory: a page is brought to 2,000 px before it is cut."""
    right = image.load_image

    def load(source: Any) -> Image.Image:
        page = right(source)
        page.thumbnail((2000, 2000), BICUBIC)
        return page

    patch.setattr(inputs, "load_image", load)


@mistake("HLD-03", "Resized in two steps", "tokenizer", SHRUNK)
def two_steps(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """reducing_gap=2 makes Pillow average pixels before it resizes, where it shrinks by four or more."""
    _resized(patch, lambda right, page, size: right(page, size, BICUBIC, reducing_gap=2.0))


@mistake("HLD-04", "The page's side in its view truncated", "tokenizer", "some aspect ratios")
def truncated_side(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """int() in place of round() in one's own letterbox."""
    _letterboxed(patch, int, lambda left: round(left * 0.5))


@mistake("HLD-05", "The page a pixel further from its bar", "tokenizer", "some aspect ratios")
def other_side(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The odd pixel of two bars goes to the first in one's own letterbox."""
    _letterboxed(patch, round, lambda left: math.ceil(left * 0.5))


@mistake("HLD-06", "The grid of the page as it is stored", "tokenizer", "a page on its side")
def stored_size(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The size is read from the file's head, and the page is turned later."""
    sizes: dict[tuple[int, int], tuple[int, int]] = {}
    load, right = image.load_image, presets.crop_grid

    def remember(source: Any) -> Image.Image:
        page = load(source)
        with Image.open(source) as stored:
            sizes[page.size] = stored.size
        return page

    patch.setattr(inputs, "load_image", remember)
    patch.setattr(presets, "crop_grid", lambda width, height, to: right(*sizes.get((width, height), (width, height)), to))


@mistake("HLD-07", "Levels of 16 bits scaled", "tokenizer", "a page of 16 bits")
def scaled_levels(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """They are divided by 256, where Pillow's conversion clips them."""

    def scaled(opened: Image.Image) -> Image.Image:
        if not opened.mode.startswith("I"):
            return opened
        return Image.fromarray((np.asarray(opened) // 256).astype(np.uint8))

    _opened(patch, scaled)


@mistake("HLD-08", "Mirrored orientations left alone", "tokenizer", "a mirrored photograph")
def mirrors_ignored(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """One's own table of EXIF orientations has the three turns only."""

    def upright(open_image: Any) -> Image.Image:
        page = open_image()
        turn = TURNS.get(page.getexif().get(0x0112))
        turned: Image.Image = page if turn is None else page.transpose(turn)
        return turned.convert("RGB")

    patch.setattr(image, "_upright_rgb", upright)


@mistake("HLD-09", "CMYK converted by hand", "tokenizer", "a page in CMYK")
def by_hand(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The product of the complements, with the levels of Adobe's files inverted once more."""

    def converted(opened: Image.Image) -> Image.Image:
        if opened.mode != "CMYK":
            return opened
        inks = np.asarray(opened).astype(np.float32) / 255
        return Image.fromarray((inks[..., :3] * inks[..., 3:] * 255).astype(np.uint8))

    _opened(patch, converted)


@mistake("HLD-10", "The last of several frames", "tokenizer", "a page of several frames")
def last_frame(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The reader leaves the file at its last frame."""

    def last(opened: Image.Image) -> Image.Image:
        opened.seek(getattr(opened, "n_frames", 1) - 1)
        return opened

    _opened(patch, last)


@mistake("HLD-11", "Levels normalised in bfloat16", "tokenizer")
def rounded_steps(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Levels are cast first, so that each of three steps is rounded."""
    change_pixels(patch, lambda levels: levels.bfloat16().div_(255).sub_(0.5).div_(0.5))


@mistake("HLD-12", "Pixels in float16", "tokenizer")
def half_pixels(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """They are made on the device, in its usual half precision."""
    change_pixels(patch, lambda levels: levels.float().div_(255).sub_(0.5).div_(0.5).half())
    patch.setattr(inputs, "check_inputs", lambda *args: None)


@mistake("HLD-13", "Views resized by torch", "tokenizer")
def by_torch(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """F.interpolate, bicubic and with antialias: its kernel and its rounding are others than Pillow's."""
    resize_by_torch(patch, antialias=True)


@mistake("HLD-14", "Each crop resized from its own box", "tokenizer", CROPS)
def own_boxes(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """resize(box=...) in place of one resize that is then cut: where a box has no whole pixels, others are weighed."""

    def crops(page: Image.Image, of: presets.Grid) -> list[Image.Image]:
        columns, rows = of
        if columns * rows == 1:
            return []
        width, height = page.width / columns, page.height / rows
        boxes = [
            (c * width, r * height, (c + 1) * width, (r + 1) * height) for r in range(rows) for c in range(columns)
        ]
        return [page.resize((DEFAULT.tiling.crop_px, DEFAULT.tiling.crop_px), box=box) for box in boxes]

    change_crops(patch, crops)


@mistake("HLD-15", "Aspect ratios rounded", "tokenizer", "some sizes")
def rounded_ratios(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Ratios are compared with two decimals, so that grids become equally near."""
    choose_grid(patch, lambda page, grid: abs(round(page, 2) - round(grid, 2)), DEFAULT.tiling.crop_px)


@mistake("HLD-16", "Cut by area", "tokenizer", "a long small page")
def by_area(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """A page is left whole where it has no more pixels than a crop."""
    right = presets.crop_grid
    patch.setattr(presets, "crop_grid", lambda w, h, to: (1, 1) if w * h <= to.crop_px**2 else right(w, h, to))


@mistake("HLD-17", "Bars of zero", "tokenizer", TALL)
def bars_of_zero(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The tensor is padded, and not the page: zero is between two levels."""

    def padded(made: Any) -> Any:
        bars = made.images_ori == inputs.normalise(torch.tensor(image.GREY[0], device=made.images_ori.device))
        whole = bars.all(dim=1, keepdim=True)
        ends = whole.all(dim=2, keepdim=True) | whole.all(dim=3, keepdim=True)
        return replace(made, images_ori=made.images_ori.masked_fill(ends, 0.0))

    change_inputs(patch, padded)


@mistake("HLD-18", "Small with bars", "tokenizer", "preset Small, a page that is no square")
def small_with_bars(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """< in place of <=: views below 640 px are squashed, and not those of 640 px."""
    patch.setattr(
        Preset, "is_squashed", property(lambda self: not self.crop and self.view_size < DEFAULT.tiling.crop_px)
    )


@mistake("HLD-19", "The area's mean where a page is shrunk", "tokenizer", "a page larger than its views")
def area(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The advice of another library: its area filter to shrink, bicubic to enlarge."""
    box: Any = lambda page, size: Image.Resampling.BOX if page.width > size[0] else BICUBIC  # noqa: E731
    _resized(patch, lambda right, page, size: right(page, size, box(page, size)))
