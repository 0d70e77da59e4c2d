"""Mistakes in reading the image file, its geometry, the prompt and the tokenizer."""

from __future__ import annotations

import re
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageCms, ImageOps

from pytest_dsocr.contract import inputs, presets
from pytest_dsocr.contract.image import GREY
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.subjects.session import SessionSubject
from tests.exam.planting import TALL, instead, mistake


def change_padded(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the padded view of a page, given the page, the view's side, and the right view."""

    def views(right: Any, page: Any, preset: Any, grid: Any) -> Any:
        whole, crops = right(page, preset, grid)
        return whole if preset.is_squashed else change(page, preset.view_size, whole), crops

    instead(patch, inputs, "views", views)


def centred(page: Image.Image, side: int) -> Image.Image:
    """Put a page that fits into a grey view, by whole pixels."""
    view = Image.new("RGB", (side, side), GREY)
    view.paste(page, ((side - page.width) // 2, (side - page.height) // 2))
    return view


def encode_parts(patch: pytest.MonkeyPatch, cut: str) -> None:
    """Cut texts where an expression matches, and encode each part by itself."""

    def encode(right: Any, self: Tokenizer, text: str) -> list[int]:
        return [token for part in re.split(cut, text) for token in right(self, part)]

    instead(patch, Tokenizer, "encode", encode)


@mistake("THD-01", "Large JPEGs are decoded at a fraction of their size", "tokenizer", "a JPEG of 2048 px or more")
def drafted(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The decoder is asked for at least 1024 px, and libjpeg scales as it decodes; grid and crops are made of that."""

    def load(right: Any, source: Any) -> Any:
        if isinstance(source, str | Path):
            source = Image.open(source)
            source.draft("RGB", (1024, 1024))
        return right(source)

    instead(patch, inputs, "load_image", load)


@mistake("THD-02", "Small pages are not enlarged", "tokenizer", "a page that is smaller than its view")
def not_enlarged(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The view is made by thumbnail, which shrinks and never enlarges: a small page stays small amid the padding."""
    change_padded(patch, lambda page, side, made: centred(page, side) if max(page.size) < side else made)


@mistake("THD-03", "The padding is divided by whole pixels", "tokenizer", "a page whose padding is odd")
def floored(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Half of an odd padding is rounded down, where Pillow rounds it to the even pixel: every other one is off by 1."""
    change_padded(patch, lambda page, side, made: centred(ImageOps.contain(page, (side, side)), side))


@mistake("THD-04", "The padding is zero", "tokenizer", TALL)
def zero_padding(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Pages are padded on the device, behind the normalisation, with 0; level 127 is a little less than that."""

    def padded(made: Inputs) -> Inputs:
        grey = (made.images_ori == inputs.normalise(torch.tensor(GREY[0]))).all(dim=1, keepdim=True)
        bars = grey.all(dim=2, keepdim=True) | grey.all(dim=3, keepdim=True)
        return replace(made, images_ori=made.images_ori.masked_fill(bars, 0))

    instead(patch, inputs, "prepare_inputs", lambda right, *args: padded(right(*args)))


@mistake("THD-05", "Colours are managed", "tokenizer", "a page with a colour profile")
def colour_managed(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The platform's image loader converts pages from their embedded ICC profile to sRGB."""

    def load(right: Any, source: Any) -> Any:
        page = right(source)
        profile = page.info.get("icc_profile", b"")
        if profile[16:20] != b"RGB ":
            return page
        return ImageCms.profileToProfile(page, BytesIO(profile), ImageCms.createProfile("sRGB"))

    instead(patch, inputs, "load_image", load)


@mistake("THD-06", "Narrow pages are not cut", "tokenizer", "a long page that is at most 640 px wide")
def narrow_uncut(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A page is left uncut where one of its sides fits into a crop, in place of both."""
    instead(patch, presets, "crop_grid", lambda right, w, h, t: (1, 1) if min(w, h) <= t.crop_px else right(w, h, t))


@mistake("THD-07", "A page is taken for an earlier one of its size", "tokenizer", "a second page of the same size")
def kept_by_size(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The server keeps decoded images, and the key is made of mode and size without the content."""
    kept: dict[Any, Any] = {}
    instead(patch, inputs, "load_image", lambda right, source: kept.setdefault((page := right(source)).size, page))


@mistake("THD-08", "The line break behind the image is lost", "tokenizer")
def stripped_pieces(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The texts around the image are stripped one by one, in place of the whole prompt."""
    instead(patch, inputs, "split_at_images", lambda right, *args: [piece.strip() for piece in right(*args)])


@mistake("THD-09", "<|grounding|> is spelled out", "tokenizer", "any page, with a prompt that asks for boxes")
def spelled_out(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The server takes special tokens in a user's text for plain text, so that nobody injects any."""
    encode_parts(patch, r"(?<=<)(?=\|)")


@mistake("THD-10", "Blanks are cut off from their words", "tokenizer")
def cut_blanks(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The pre-tokenizer's expression is another model's, which does not keep a blank with the word behind it."""
    encode_parts(patch, r"(?<= )(?=\S)|(?<=\S)(?= )")


@mistake("THD-11", "BOS stands before each text", "tokenizer")
def bos_again(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Each piece of text between images is encoded as if it began the prompt, so a BOS follows the image as well."""
    bos = subject.session.tokenizer.special.bos
    instead(patch, Tokenizer, "encode", lambda right, self, text: [bos] * bool(text) + right(self, text))


@mistake("THD-12", "The image comes last", "tokenizer")
def text_first(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The server gathers the text of a message, and puts its images behind that."""

    def prepare(right: Any, page: Any, prompt: str, *rest: Any) -> Inputs:
        made: Inputs = right(page, prompt.replace("<image>", "").strip() + "\n<image>", *rest)
        return made

    instead(patch, inputs, "prepare_inputs", prepare)
