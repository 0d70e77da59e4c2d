"""Mistakes in the choice of tokens, in the end and in the text: the half whose outcome is seen last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from pytest_dsocr.contract import artifacts, drawing, image, markup
from pytest_dsocr.contract.markup import IMAGE_LABEL, Box, PixelBox, Span
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine import pipeline
from pytest_dsocr.subjects.engine import EngineSubject
from oldexam.planting import (
    FIGURES,
    REPEATS,
    change_ban,
    change_loop,
    end_where_repeated,
    greedy_groups,
    mistake,
    tidied,
)

PENALTY, LEAST_TOKENS = 1.05, 16


class _Banned(list[int]):
    """Tokens that would repeat an n-gram, and all that were said."""

    def __init__(self, banned: Sequence[int], seen: Sequence[int]) -> None:
        super().__init__(banned)
        self.seen = seen


class _Seen(NgramBan):
    """A rule for n-grams that knows every token of its row, and how many of the prompt there are."""

    def __init__(self, size: int, prompt: Any, window: int | None = None) -> None:
        self.seen: list[int] = []
        super().__init__(size, prompt, window)
        self.prompt_tokens = len(self.seen)

    def push(self, token: int) -> None:
        super().push(token)
        self.seen.append(token)

    def banned(self) -> list[int]:
        return _Banned(super().banned(), self.seen)


@mistake("NEW-085", "Repetition penalty of 1.05", "read")
def repetition_penalty(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The server's default sampling parameters are left on."""
    right = pipeline.pick

    def pick(logits: Tensor, banned: Any) -> list[int]:
        logits = logits.clone()
        for scores, own in zip(logits, banned, strict=True):
            if isinstance(own, _Banned):  # and not the suite's, which chooses by the same function
                said = torch.tensor(own.seen, device=scores.device).unique()
                scores[said] = torch.where(scores[said] > 0, scores[said] / PENALTY, scores[said] * PENALTY)
        return right(logits, banned)

    change_ban(patch, _Seen)
    patch.setattr(pipeline, "pick", pick)


@mistake("NEW-087", "Loop guard ends the output", "read", REPEATS)
def loop_guard(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Decoding ends where eight tokens come three times in a row."""
    end_where_repeated(patch, 3)


@mistake("NEW-088", "EOS forbidden at first", "read", "a page with a short or empty output")
def least_tokens(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """min_tokens=16 is left in the server's defaults."""
    eos = subject.engine.tokenizer.special.eos

    class Least(_Seen):
        def banned(self) -> list[int]:
            early = len(self.seen) - self.prompt_tokens < LEAST_TOKENS
            return [*super().banned(), eos] if early else super().banned()

    change_ban(patch, Least)


@mistake("NEW-089", "Ceiling counts the prompt", "read", "an output near the ceiling")
def ceiling_with_prompt(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """max_new_tokens is passed as max_length, prompt included."""

    def steps(right: Any, pipeline: Any, state: Any, prompts: Any, policy: Any, pad: int) -> Any:
        left = max(1, policy.max_new_tokens - len(prompts[0]))
        return right(pipeline, state, prompts, replace(policy, max_new_tokens=left), pad)

    change_loop(patch, steps)


@mistake("NEW-093", "Pixels rounded", "postprocess", FIGURES)
def rounded_pixels(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Coordinates are rounded to the nearest pixel, where the vendor truncates."""

    def to_pixels(box: Box, width: int, height: int) -> PixelBox:
        sides = (width, height) * 2
        return PixelBox(*(round(value / markup.UNITS * side) for value, side in zip(box, sides, strict=True)))

    patch.setattr(drawing, "to_pixels", to_pixels)


spans_greedy = mistake("NEW-095", "Spans matched greedily", "postprocess", "a text with two spans")(greedy_groups)


@mistake("NEW-096", "Figures cut from the file's own orientation", "postprocess", "a turned page with a figure")
def figures_before_exif(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The page is opened again for figures, without its EXIF orientation."""
    opened: dict[str, Any] = {}
    load, cut = image.load_image, drawing.crop_figure

    def remember(source: Any) -> Image.Image:
        opened["source"] = source
        return load(source)

    def crop(page: Image.Image, pixels: PixelBox) -> Image.Image:
        source = opened["source"]
        stored = source if isinstance(source, Image.Image) else Image.open(source)
        return cut(stored.convert("RGB"), pixels)

    patch.setattr(artifacts, "load_image", remember)
    patch.setattr(artifacts, "crop_figure", crop)


spaces_removed = mistake("NEW-097", "Spaces before punctuation removed", "postprocess", "blanks before stops")(tidied)


@mistake("NEW-098", "Every label with the word image is a figure", "postprocess", "an image_caption")
def image_in_label(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """image_caption is taken for an image, in the files and in the links."""
    right = drawing.place

    def to_mmd(text: str, form: Any) -> str:
        output = markup.clean_output(text)
        found = [(output[one.start : one.end], one.label) for one in markup.find_spans(output, form)]
        links = [span for span, label in found if IMAGE_LABEL in label]
        for index, span in enumerate(links):
            output = output.replace(span, f"![](images/{index}.jpg)\n")
        for span, label in found:
            if IMAGE_LABEL not in label:
                output = markup.plain_symbols(output.replace(span, ""))
        return output

    def place(spans: Any, width: int, height: int) -> Any:
        named: Any = lambda one: replace(one, label=IMAGE_LABEL) if IMAGE_LABEL in one.label else one  # noqa: E731
        kept: list[Span] = [named(one) for one in spans]
        return right(kept, width, height)

    patch.setattr(artifacts, "place", place)
    patch.setattr(artifacts, "to_mmd", to_mmd)
