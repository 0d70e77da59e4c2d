"""Mistakes in the pixels of a page and of its crops."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from pytest_dsocr.contract import image, inputs
from pytest_dsocr.contract.presets import PRESETS, Preset, get_preset
from pytest_dsocr.engine import session
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.registry import COLOUR, CROPS, fault

WORSE, TALL = "small print goes wrong", "a page that is no square"
BICUBIC, BILINEAR = Image.Resampling.BICUBIC, Image.Resampling.BILINEAR


def prepared(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change what is handed to the model, behind the contract's own checks."""
    right = inputs.prepare_inputs
    patch.setattr(session, "prepare_inputs", lambda *args: change(right(*args)))


def _pixels(patch: pytest.MonkeyPatch, change: Any) -> None:
    patch.setattr(inputs, "pixels", lambda of: change(inputs_pixels(of)))


inputs_pixels = inputs.pixels


@fault("IMG-01", "A bilinear filter", "tokenizer", WORSE, "the filter")
def bilinear(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The port's default filter."""
    right = Image.Image.resize
    patch.setattr(
        Image.Image, "resize", lambda self, size, resample=BILINEAR, *a, **k: right(self, size, BILINEAR, *a, **k)
    )


@fault("IMG-03", "No antialias", "tokenizer", WORSE, "antialias", "a page larger than its views")
def not_antialiased(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A device's resizing leaves antialias off by default."""

    def resize(self: Image.Image, size: tuple[int, int], *args: Any, **options: Any) -> Image.Image:
        scale = (self.width / size[0], 0.0, 0.0, 0.0, self.height / size[1], 0.0)
        return self.transform(size, Image.Transform.AFFINE, scale, BICUBIC)

    patch.setattr(Image.Image, "resize", resize)


@fault("IMG-04", "Bars of 128", "tokenizer", "nothing", "grey 127", TALL)
def other_grey(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Half of 255 was rounded up."""
    patch.setattr(image, "GREY", (128, 128, 128))


@fault("IMG-W1", "White bars", "tokenizer", WORSE, "grey 127", TALL)
def white_bars(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A page's own colour is taken for the bars."""
    patch.setattr(image, "GREY", (255, 255, 255))


@fault("IMG-05", "The whole page squashed", "tokenizer", "a loop, and boxes elsewhere", "centred between bars", TALL)
def squashed(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The view of the whole page is stretched to a square."""
    patch.setattr(inputs, "global_view", lambda page, preset: page.resize((preset.view_size, preset.view_size)))


@fault("IMG-W2", "The page at the top left of its view", "tokenizer", "boxes elsewhere", "centred", TALL)
def top_left(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The bars are all at one end."""
    pad: Any = lambda page, preset: ImageOps.pad(page, (preset.view_size,) * 2, color=image.GREY, centering=(0, 0))  # noqa: E731
    patch.setattr(inputs, "global_view", pad)


@fault(
    "IMG-07",
    "Tiny and Small with bars",
    "tokenizer",
    "other boxes in Tiny and Small",
    "squashed",
    "preset Tiny or Small",
)
def not_squashed(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The branch for small presets is missing."""
    pad: Any = lambda page, preset: ImageOps.pad(page, (preset.view_size,) * 2, color=image.GREY)  # noqa: E731
    patch.setattr(inputs, "global_view", pad)


@fault("IMG-08", "CLIP's mean and deviation", "tokenizer", WORSE, "range")
def clips_mean(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A processor's default was kept."""
    mean, deviation = torch.tensor([0.4815, 0.4578, 0.4082]), torch.tensor([0.2686, 0.2613, 0.2758])
    shift: Any = lambda p: (p.float() / 2 + 0.5 - mean[:, None, None]) / deviation[:, None, None]  # noqa: E731
    _pixels(patch, lambda p: shift(p).bfloat16())


@fault("IMG-W3", "Levels over 256", "tokenizer", "nothing", "range")
def over_256(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Levels are divided by 256."""
    patch.setattr(inputs, "WHITE", 256)


@fault("IMG-W4", "Pixels from 0 to 1", "tokenizer", WORSE, "range")
def from_nought(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The second normalisation is missing."""
    _pixels(patch, lambda p: (p.float() / 2 + 0.5).bfloat16())


@fault("IMG-09", "Blue, green, red", "tokenizer", "wrong colours", "channels' order", COLOUR)
def bgr(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A decoder that gives BGR."""
    _pixels(patch, lambda p: p.flip(1))


@fault(
    "IMG-11",
    "Transparency on white",
    "tokenizer",
    "text appears or vanishes",
    "transparency|alpha",
    "a page with alpha",
)
def on_white(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The page is composited before it is converted."""

    def upright(open_image: Any) -> Image.Image:
        page = ImageOps.exif_transpose(open_image())
        if page.mode not in ("RGBA", "LA"):
            return page.convert("RGB")
        alpha = page.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", alpha.size, "white"), alpha).convert("RGB")

    patch.setattr(image, "_upright_rgb", upright)


@fault("IMG-W5", "EXIF's orientation left alone", "tokenizer", "a page on its side", "EXIF", "a photograph on its side")
def not_turned(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The file is opened and converted only."""
    patch.setattr(image, "_upright_rgb", lambda open_image: open_image().convert("RGB"))


@fault("IMG-W6", "The page in grey", "tokenizer", "wrong colours", "channels|colour", COLOUR)
def grey(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A decoder for text asks for one channel."""
    _pixels(patch, lambda p: p.float().mean(1, keepdim=True).expand_as(p).bfloat16())


@fault("IMG-W7", "A page read as a JPEG of it", "tokenizer", "nothing", "filter|pixels", "a page that is no JPEG")
def as_jpeg(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The server encodes its uploads again."""
    right = image.load_image

    def load(source: Any) -> Image.Image:
        levels = np.asarray(right(source))
        return Image.fromarray((levels // 4 * 4).astype(np.uint8))

    patch.setattr(inputs, "load_image", load)


@fault("DTP-01", "Crops cast to whole numbers", "tokenizer", "only the whole page is read", "whole numbers", CROPS)
def whole_numbers(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """images_crop.to(torch.long), and back."""
    cast: Any = lambda made: replace(made, images_crop=made.images_crop.long().to(made.images_crop.dtype))  # noqa: E731
    prepared(patch, cast)


@fault("IMG-W8", "Pixels that are not rounded to bfloat16", "tokenizer", "nothing", "dtype")
def wide_pixels(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """They are left in float32, as the model is."""

    def wide(of: Any) -> Tensor:
        levels = torch.from_numpy(np.stack([np.asarray(view) for view in of])).permute(0, 3, 1, 2)
        return (levels.float() / 255 - 0.5) / 0.5

    patch.setattr(inputs, "pixels", wide)
    patch.setattr(inputs, "check_inputs", lambda *args: None)


@fault("PRS-W1", "Sizes taken for a preset's", "tokenizer", WORSE, "base_size and image_size", "sizes of one's own")
def nearest_preset(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The server knows five modes, and takes the nearest of them for whatever sizes are asked for."""

    def nearest(asked: str | Preset) -> Preset:
        own = get_preset(asked)
        return min(PRESETS.values(), key=lambda one: (one.crop != own.crop, abs(one.view_size - own.view_size)))

    patch.setattr(inputs, "get_preset", nearest)
