"""Mistakes in prompts and their image tokens, listed before the checks were read."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from pytest_dsocr.contract import inputs
from pytest_dsocr.contract import prompt as prompt_module
from pytest_dsocr.contract.presets import tokens_per_side
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEFAULT
from pytest_dsocr.subjects.engine import EngineSubject
from oldexam.planting import LONG, TALL, change_ids, change_prompt, mistake

TWO_IMAGES = "a prompt of two images"
NO_SECOND = "the vendor's infer takes one page, and its forward raises for two: nothing says what is right"


@mistake("HLD-21", "Runs of blanks in the prompt made one", "tokenizer", "a prompt that has some")
def collapsed(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The request is tidied."""
    change_prompt(patch, lambda prompt: re.sub(" {2,}", " ", prompt))


@mistake("HLD-22", "Markup in the prompt escaped", "tokenizer", "a prompt that locates")
def escaped(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """A guard against special tokens in requests, which the model's own prompt has."""
    change_prompt(patch, lambda prompt: prompt.replace("<|ref|>", "< |ref|>").replace("<|/ref|>", "< |/ref|>"))


@mistake("HLD-23", "Prompts cut to 1,024 tokens", "tokenizer", LONG)
def cut(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The server's longest prompt; what stands in front goes."""
    change_ids(patch, lambda ids, mask: (ids[-1024:], mask[-1024:]))


@mistake("HLD-24", "The mask begins behind BOS", "tokenizer", "text in front of the image")
def mask_behind_bos(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """It is made for BOS, image, text, and the prompt has text in front."""

    def made(ids: Any, mask: Any) -> Any:
        at = torch.arange(len(mask), device=mask.device)
        return ids, (at >= 1) & (at < 1 + mask.sum())

    change_ids(patch, made)


@mistake("HLD-25", "Columns and rows exchanged in the count", "tokenizer", TALL)
def exchanged_count(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """A newline is counted for each column of the crops."""

    def count(preset: Any, grid: tuple[int, int]) -> int:
        side = tokens_per_side(preset.image_size)
        crops = DEFAULT.layout.crop_tokens(side, grid[::-1])
        return DEFAULT.layout.page_tokens(tokens_per_side(preset.view_size)) + crops

    patch.setattr(inputs, "image_token_count", count)
    patch.setattr(inputs, "check_inputs", lambda *args: None)


@mistake("HLD-26", "The text between two images dropped", "tokenizer", TWO_IMAGES, unseen=NO_SECOND)
def between(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The prompt is taken for what stands in front of the image and behind it."""
    right = prompt_module.split_at_images
    ends: Any = lambda pieces: [pieces[0], *[""] * (len(pieces) - 2), *pieces[1:][-1:]]  # noqa: E731
    patch.setattr(inputs, "split_at_images", lambda prompt, images, **how: ends(right(prompt, images, **how)))
