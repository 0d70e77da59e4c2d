"""Mistakes in the choice of tokens and in what is made of them, listed before the checks were read."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
import torch

from pytest_dsocr.contract import artifacts, drawing, markup
from pytest_dsocr.contract.markup import Box, PixelBox
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.contract.prompt import EOS
from pytest_dsocr.engine import engine, pipeline
from pytest_dsocr.subjects.engine import EngineSubject
from oldexam.planting import REPEATS, change_ban, change_decoding, change_loop, end_where_repeated, mistake


@mistake("HLD-79", "The rule for n-grams a token late", "read", REPEATS)
def late_rule(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The next step is scheduled before the last token is known, and the rule looks at those in front of it."""

    class Late(NgramBan):
        def __init__(self, size: int, prompt: Any, window: int | None = None) -> None:
            super().__init__(size, list(prompt)[:-1], window)
            self.waiting = prompt[-1]

        def push(self, token: int) -> None:
            if hasattr(self, "waiting"):
                token, self.waiting = self.waiting, token
            super().push(token)

    change_ban(patch, Late)


@mistake("HLD-80", "Pad ends the output as well", "read", "a page where pad is said")
def pad_ends(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Pad is among the ids of the end, as in other models."""
    pad = subject.engine.tokenizer.special.pad

    def steps(right: Any, *args: Any) -> Any:
        for tokens in right(*args):
            if pad in tokens:
                return
            yield tokens

    change_loop(patch, steps)


@mistake("HLD-81", "Repeating output ended", "read", REPEATS)
def loop_detector(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The server takes eight tokens that come twice in a row for a loop."""
    end_where_repeated(patch, 2)


@mistake(
    "HLD-82",
    "EOS at the ceiling",
    "read",
    "a page that reaches the ceiling",
    unseen="a subject gives a text without EOS",
)
def end_at_the_ceiling(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """The last token is replaced by EOS, so that every output is well formed."""
    right = engine.Engine._result_of  # what the loop gives beyond the ceiling is cut off in front of it

    def result_of(self: Any, row: Any, inputs: Any, visions: Any, steps: int, policy: Any) -> Any:
        ended = [*row, policy.eos_id] if len(row) == policy.max_new_tokens else row
        return right(self, ended, inputs, visions, steps, policy)

    patch.setattr(engine.Engine, "_result_of", result_of)


@mistake("HLD-84", "The best of logits in half precision", "read", "a near tie")
def half_logits(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Logits are brought to the host in float16, where two of them may be equal."""
    right = pipeline.pick
    patch.setattr(pipeline, "pick", lambda logits, banned: right(logits.half(), banned))


@mistake("HLD-85", "EOS forbidden as the first token", "read", "a page that ends at once")
def no_empty_text(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """min_new_tokens is 1."""
    eos = subject.engine.tokenizer.special.eos

    def steps(right: Any, pipeline: Any, state: Any, *rest: Any) -> Any:
        state.logits = state.logits.clone()
        state.logits[:, eos] = -torch.inf
        return right(pipeline, state, *rest)

    change_loop(patch, steps)


@mistake("HLD-88", "Boxes kept inside the page", "postprocess", "a box beyond the page")
def clamped(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Coordinates are brought to 0 to 999 before they are used."""
    right = markup.to_pixels

    def to_pixels(box: Box, width: int, height: int) -> PixelBox:
        return right(Box(*(max(0, min(999, value)) for value in box)), width, height)

    patch.setattr(drawing, "to_pixels", to_pixels)


@mistake("HLD-89", "A span replaced once", "postprocess", "two equal spans")
def replaced_once(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """replace(span, text, 1): of equal spans the vendor replaces all at the first one's turn."""

    def to_mmd(text: str, form: Any) -> str:
        output = markup.clean_output(text)
        spans = [output[one.start : one.end] for one in markup.find_spans(output, form)]
        links = [span for span in spans if markup.IMAGE_REF in span]
        for index, span in enumerate(links):
            output = output.replace(span, f"![](images/{index}.jpg)\n", 1)
        for span in spans:
            if markup.IMAGE_REF not in span:
                output = markup.plain_symbols(output.replace(span, "", 1))
        return output

    patch.setattr(artifacts, "to_mmd", to_mmd)


@mistake("HLD-90", "Coordinates by digits", "postprocess", "coordinates with a sign or a point")
def digits(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """A regular expression takes every run of digits for a coordinate."""

    def read_boxes(coordinates: str, form: Any) -> tuple[tuple[Box, ...], str | None]:
        numbers = [int(one) for one in re.findall(r"\d+", coordinates)]
        boxes = tuple(Box(*numbers[k : k + 4]) for k in range(0, len(numbers) - 3, 4))
        return boxes, None if boxes else "no coordinates"

    patch.setattr(markup, "read_boxes", read_boxes)


@mistake("HLD-93", "HTML's entities resolved", "postprocess", "a text with entities")
def entities(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Tables are HTML, and the text is unescaped as a whole."""
    change_decoding(patch, lambda right, self, ids: unescape(right(self, ids)))


@mistake("HLD-94", "Blanks in front of the text kept", "postprocess", "a text that begins with a blank")
def blanks_in_front(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """rstrip in place of strip."""
    cleaned: Any = lambda text: text.removesuffix(EOS).rstrip()  # noqa: E731
    patch.setattr(markup, "clean_output", cleaned)
    patch.setattr(engine, "clean_output", cleaned)
