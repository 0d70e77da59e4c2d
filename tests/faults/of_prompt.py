"""Mistakes in the prompt, its ids and its mask, and in the grid of crops."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image, ImageOps

from pytest_dsocr.contract import image, inputs, presets
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine import session
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.of_pixels import TALL, WORSE, prepared
from tests.faults.registry import CROPS, fault

ANOTHER, SMALL = "another text than the vendor's", "a page within 640 px"


def _ids(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the ids and the mask, ``[S]`` each."""

    def changed(made: Inputs) -> Inputs:
        ids, mask = change(made.input_ids[0], made.images_seq_mask[0])
        return replace(made, input_ids=ids[None], images_seq_mask=mask[None])

    prepared(patch, changed)


def _prompt(patch: pytest.MonkeyPatch, change: Any) -> None:
    right = inputs.prepare_inputs
    patch.setattr(session, "prepare_inputs", lambda page, prompt, *rest: right(page, change(prompt), *rest))


def _grid(patch: pytest.MonkeyPatch, change: Any) -> None:
    right = presets.crop_grid
    patch.setattr(inputs, "crop_grid", lambda width, height: change(right, width, height))


@fault("PRM-01", "The image behind the text", "tokenizer", "half of the text is made up", "in front of the prompt")
def image_behind(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The template appends the placeholder."""
    order: Any = lambda ids, mask: torch.cat([ids[:1], ids[1:][~mask[1:]], ids[mask]])  # noqa: E731
    ends: Any = lambda mask: torch.arange(len(mask)) >= len(mask) - mask.sum()  # noqa: E731
    _ids(patch, lambda ids, mask: (order(ids, mask), ends(mask)))


@fault("PRM-02", "No BOS", "tokenizer", "no text", "BOS, id 0")
def no_bos(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The template of another model has none."""
    _ids(patch, lambda ids, mask: (ids[1:], mask[1:]))


@fault("PRM-10", "Two BOS", "tokenizer", ANOTHER, "BOS is put in front once")
def two_bos(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The tokenizer adds one as well."""
    _ids(patch, lambda ids, mask: (torch.cat([ids[:1], ids]), torch.cat([mask[:1], mask])))


@fault("PRM-04", "A blank left behind the prompt", "tokenizer", ANOTHER, "stripped")
def not_stripped(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The prompt is not stripped; the model card's end in a blank."""
    blank = torch.tensor(subject.session.tokenizer.encode(" "))
    _ids(patch, lambda ids, mask: (torch.cat([ids, blank]), torch.cat([mask, torch.zeros_like(blank).bool()])))


@fault("PRM-06", "Something added to the prompt", "tokenizer", ANOTHER, "nothing added")
def added_words(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The interface adds a sentence."""
    _prompt(patch, lambda prompt: prompt + " Only output the raw text.")


@fault("PRM-11", "The prompt of the configuration", "tokenizer", ANOTHER, "request's own")
def other_prompt(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A module's constant is tokenised in place of the request's prompt."""
    _prompt(patch, lambda prompt: "<image>\nFree OCR.")


@fault("PRM-W1", "The line end behind the image lost", "tokenizer", ANOTHER, "prompt's text")
def lost_line_end(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Each piece of the prompt is stripped."""
    _prompt(
        patch,
        lambda prompt: (
            "<image>" + prompt.removeprefix("<image>").strip()
            if "<image>" in prompt
            else "<image><|grounding|>Convert the document to markdown."
        ),
    )


@fault("PRM-W2", "EOS behind the prompt", "tokenizer", "no text", "prompt's text|EOS")
def eos_behind(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The tokenizer adds special tokens at the end."""
    eos = torch.tensor([subject.session.tokenizer.special.eos])
    _ids(patch, lambda ids, mask: (torch.cat([ids, eos]), torch.cat([mask, mask[:1]])))


@fault("SCH-04", "No image token for the separator", "tokenizer", "an error, or a page shifted", "separator")
def no_separator_token(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The last term of the formula was forgotten."""
    _ids(patch, lambda ids, mask: (torch.cat([ids[:1], ids[2:]]), torch.cat([mask[:1], mask[2:]])))


@fault("SCH-05", "Newlines of each crop's rows", "tokenizer", "an error, or a page shifted", "not of each", CROPS)
def newline_per_crop(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A newline is counted for each row of each crop."""
    right = presets.image_token_count

    def count(preset: Any, of: tuple[int, int]) -> int:
        return right(preset, of) + (of[0] - 1) * of[1] * 10 * (math.prod(of) > 1)

    patch.setattr(inputs, "image_token_count", count)
    patch.setattr(inputs, "check_inputs", lambda *args: None)


@fault("SCH-07", "The mask one place early", "tokenizer", "the first row of the image lost", "False in front")
def early_mask(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """BOS is put into the ids and not into the mask."""
    _ids(patch, lambda ids, mask: (ids, mask.roll(-1)))


@fault("SCH-W2", "Another id for the image's tokens", "tokenizer", "nothing", "vocabulary|ids", equivalent="")
def other_image_id(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Pad stands at the image's places; features are written over it."""
    pad = subject.session.tokenizer.special.pad
    _ids(patch, lambda ids, mask: (ids.masked_fill(mask, pad), mask))


@fault(
    "GRD-01", "At most six crops", "tokenizer", "other tokens on wide pages", "2 to 9", "a page of more than six crops"
)
def six_crops(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The limit of the vendor's code for another runner."""
    _grid(patch, lambda right, width, height: right(width, height, most=6))


@fault("GRD-02", "Crops of a small page", "tokenizer", "useless crops", "not where both sides are up to 640", SMALL)
def small_page_cut(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The shortcut for a page that fits into one crop is missing."""
    _grid(patch, lambda right, w, h: right(w, h) if max(w, h) > 640 else right(w * 640, h * 640))


@fault("GRD-06", "Columns and rows exchanged", "tokenizer", "a scrambled page", "columns, then rows", TALL)
def exchanged(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Height comes first, as in arrays."""
    _grid(patch, lambda right, w, h: right(w, h)[::-1])


@fault("GRD-09", "Crops column by column", "tokenizer", "a scrambled page", "row by row", CROPS)
def by_columns(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The two loops are exchanged."""
    right = image.crops

    def crops(page: Image.Image, of: tuple[int, int]) -> list[Image.Image]:
        made = right(page, of)
        return [made[row * of[0] + column] for column in range(of[0]) for row in range(of[1])] if made else made

    patch.setattr(inputs, "crops", crops)


@fault("GRD-10", "640 px are too many", "tokenizer", "useless crops", "640 included", "a page of exactly 640 px")
def boundary(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """< in place of <=."""
    _grid(patch, lambda right, w, h: right(w, h) if max(w, h) != 640 else right(w * 640, h * 640))


@fault("GRD-11", "Crops of a padded page", "tokenizer", WORSE, "stretched", CROPS)
def padded_crops(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The aspect is kept, as other models do."""
    right = image.crops
    sized: Any = lambda page, of: ImageOps.pad(page, (of[0] * 640, of[1] * 640), color=image.GREY)  # noqa: E731
    patch.setattr(inputs, "crops", lambda page, of: right(sized(page, of), of))


@fault("GRD-12", "A thumbnail among the crops", "tokenizer", "an error, or a shifted page", "thumbnail", CROPS)
def thumbnail(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """use_thumbnail is on by default where the code comes from."""
    right = image.crops
    patch.setattr(
        inputs, "crops", lambda page, of: [*right(page, of), page.resize((640, 640))] if math.prod(of) > 1 else []
    )
    patch.setattr(inputs, "check_inputs", lambda *args: None)


@fault(
    "GRD-W1",
    "The first of grids equally near",
    "tokenizer",
    "fewer crops",
    "equally near|tie",
    "a square page of 900 px or more",
)
def first_of_ties(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The rule for ties is missing."""
    _grid(
        patch,
        lambda right, w, h: (
            right(w, h) if max(w, h) <= 640 else min(presets.CANDIDATES, key=lambda one: abs(w / h - one[0] / one[1]))
        ),
    )


@fault("GRD-W2", "The last of grids equally near", "tokenizer", "more crops", "equally near|tie", "a square page")
def last_of_ties(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """<= in place of <, without a look at the area."""
    _grid(
        patch,
        lambda right, w, h: (
            right(w, h)
            if max(w, h) <= 640
            else min(reversed(presets.CANDIDATES), key=lambda one: abs(w / h - one[0] / one[1]))
        ),
    )
