"""Mistakes in files, crops and prompts: the half whose outcome those who write checks and hints may see."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image, ImageOps

from pytest_dsocr.contract import image, inputs, presets
from pytest_dsocr.contract import prompt as prompt_module
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.presets import CROP_PX, Grid, Preset
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.held_out.of_pages import _opened, mirrors_ignored, rounded_steps
from tests.faults.of_pixels import prepared
from tests.faults.of_prompt import _ids
from tests.faults.open_half import mistake

SOME_SIZES = "some sizes"


@mistake("NEW-003", "Whole page shrunk by averaging areas", "tokenizer", "a page larger than its view")
def area_average(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The view of the whole page is resized by a box filter (INTER_AREA) in place of Pillow's bicubic."""

    def view(page: Image.Image, preset: Preset) -> Image.Image:
        size = (preset.view_size, preset.view_size)
        if preset.is_squashed:
            return page.resize(size, Image.Resampling.BOX)
        return ImageOps.pad(page, size, method=Image.Resampling.BOX, color=image.GREY)

    patch.setattr(inputs, "global_view", view)


@mistake("NEW-005", "Palette indices taken for grey levels", "tokenizer", "a page with a palette")
def palette_as_levels(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """An image's indices are repeated over three channels, its palette is not looked up."""

    def levels(opened: Image.Image) -> Image.Image:
        if opened.mode != "P":
            return opened
        return Image.frombytes("L", opened.size, opened.tobytes())

    _opened(patch, levels)


@mistake("NEW-007", "CMYK taken for inverted inks", "tokenizer", "a page in CMYK")
def cmyk_inverted(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Levels are inverted once more before the conversion, as other decoders do for Adobe's files."""
    _opened(patch, lambda opened: opened.point(lambda level: 255 - level) if opened.mode == "CMYK" else opened)


@mistake("NEW-008", "Transparent pages laid on white", "tokenizer", "a page with alpha whose hidden colours differ")
def alpha_on_white(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Alpha is composited on white where the vendor drops it."""

    def laid(opened: Image.Image) -> Image.Image:
        if "A" not in opened.mode and "transparency" not in opened.info:
            return opened
        white = Image.new("RGBA", opened.size, "white")
        white.alpha_composite(opened.convert("RGBA"))
        return white

    _opened(patch, laid)


mistake("NEW-009", "Mirrored EXIF orientations ignored", "tokenizer", "a mirrored photograph")(mirrors_ignored)
mistake("NEW-012", "Pixels normalised in bfloat16", "tokenizer")(rounded_steps)


def _nearest(width: int, height: int, grids: Sequence[Grid], ratio: Any = lambda one: one) -> Grid:
    """Choose as the vendor does, of other grids or by another measure of a ratio."""
    best, least = grids[0], math.inf
    for columns, rows in grids:
        distance = abs(ratio(width / height) - columns / rows)
        large = width * height > 0.5 * CROP_PX**2 * columns * rows
        if distance < least or (distance == least and large):
            best, least = (columns, rows), distance
    return best


def _chosen(patch: pytest.MonkeyPatch, choose: Any) -> None:
    """Choose the grid of a page that is cut."""
    fits: Any = lambda width, height: width <= CROP_PX and height <= CROP_PX  # noqa: E731
    patch.setattr(inputs, "crop_grid", lambda w, h: (1, 1) if fits(w, h) else choose(w, h))


@mistake("NEW-013", "A single crop counts as a grid", "tokenizer", "a nearly square page above 640 px")
def one_crop_allowed(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """min_num is 1, InternVL's default, so that a nearly square page is not cut."""
    _chosen(patch, lambda width, height: _nearest(width, height, [(1, 1), *presets.CANDIDATES]))


@mistake("NEW-015", "Not cut where one side fits", "tokenizer", "a long, narrow page")
def one_side_fits(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The page is left whole where its width or its height is up to 640, in place of both."""
    right = presets.crop_grid
    patch.setattr(inputs, "crop_grid", lambda w, h: (1, 1) if min(w, h) <= CROP_PX else right(w, h))


@mistake("NEW-016", "Ratios compared upside down", "tokenizer", SOME_SIZES)
def inverse_ratio(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Height over width is compared in place of width over height, so that distances weigh otherwise."""
    transposed: Any = lambda w, h: _nearest(h, w, [one[::-1] for one in presets.CANDIDATES])[::-1]  # noqa: E731
    _chosen(patch, transposed)


@mistake("NEW-019", "Page's ratio rounded to two decimals", "tokenizer", SOME_SIZES)
def ratio_rounded(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The ratio is rounded before grids are compared, so that near ratios tie."""
    _chosen(patch, lambda width, height: _nearest(width, height, presets.CANDIDATES, lambda one: round(one, 2)))


@mistake("NEW-024", "EOS behind the prompt", "tokenizer")
def eos_behind(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The tokenizer adds its end token to the prompt."""
    eos = torch.tensor([subject.session.tokenizer.special.eos])
    _ids(patch, lambda ids, mask: (torch.cat([ids, eos]), torch.cat([mask, torch.tensor([False])])))


@mistake("NEW-025", "Special tokens of the prompt encoded as text", "tokenizer", "a prompt with a special token")
def marks_as_text(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """<|grounding|> is split into characters, as servers that guard against injection do."""
    right = Tokenizer.encode

    def encode(self: Tokenizer, text: str) -> list[int]:
        pieces = text.replace("<|", "<\0|").split("\0")
        return [token for piece in pieces for token in right(self, piece)]

    patch.setattr(Tokenizer, "encode", encode)


@mistake("NEW-026", "Prompt normalised to NFKC", "tokenizer", "a prompt with full-width letters")
def prompt_nfkc(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The server normalises what users send, so that full-width letters become others."""
    right = prompt_module.render
    patch.setattr(prompt_module, "render", lambda prompt: unicodedata.normalize("NFKC", right(prompt)))


@mistake("NEW-027", "Mask not moved by the BOS", "tokenizer")
def mask_without_bos(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The mask is made before the BOS is put in front, and is padded at the end."""

    def moved(made: Inputs) -> Inputs:
        mask = made.images_seq_mask
        return replace(made, images_seq_mask=torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], dim=1))

    prepared(patch, moved)
