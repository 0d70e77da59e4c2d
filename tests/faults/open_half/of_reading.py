"""Mistakes in the choice of tokens, in the end and in the text: the half whose outcome may be seen by all."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from typing import Any

import pytest

from pytest_dsocr.contract import artifacts, markup, mmd
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine import pipeline
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.of_loop import _loop
from tests.faults.of_output import _decoded, one_by_one
from tests.faults.open_half import mistake
from tests.faults.registry import REPEATS

OF_EVALUATION = 35


@mistake("NEW-084", "N-gram rule of the evaluation mode", "read", REPEATS)
def ngram_35(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """35 in place of 20, and what it says of itself is 20."""
    patch.setattr(pipeline, "NgramBan", lambda size, prompt: NgramBan(OF_EVALUATION if size else 0, prompt))


@mistake("NEW-086", "Logits in bfloat16", "read", "a near tie")
def logits_bf16(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The best token is chosen of logits in bfloat16, and of equals the first."""
    right = pipeline.pick
    patch.setattr(pipeline, "pick", lambda logits, banned: right(logits.bfloat16(), banned))


@mistake("NEW-090", "Stops at a blank line", "read", "an output with an empty line")
def stop_at_blank_line(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The client's stop string is left on: output ends at the first empty line."""
    tokenizer = subject.session.tokenizer

    def steps(right: Any, *args: Any) -> Any:
        said: list[int] = []
        for tokens in right(*args):
            said.append(tokens[0])
            yield tokens
            if "\n\n" in tokenizer.decode(said[-8:]):
                return

    _loop(patch, steps)


@mistake("NEW-091", "Ceiling short by one", "read", "an output that ends at the ceiling")
def ceiling_less_one(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The prefill's token counts twice, so that one token fewer is given at the ceiling."""

    def steps(right: Any, pipeline: Any, state: Any, prompts: Any, policy: Any, pad: int) -> Any:
        less = replace(policy, max_new_tokens=max(1, policy.max_new_tokens - 1))
        return right(pipeline, state, prompts, less, pad)

    _loop(patch, steps)


mistake("NEW-092", "Tokens decoded one by one", "postprocess", "a character of two tokens")(one_by_one)


@mistake("NEW-094", "Links numbered by box", "postprocess", "an image span of several boxes")
def links_by_box(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Links in result.mmd count boxes, where the vendor counts spans."""

    def to_mmd(text: str) -> str:
        output = mmd.clean_output(text)
        spans = [output[start:end] for start, _, _, end in markup.find_spans(output)]
        figures = 0
        for span in (one for one in spans if mmd.IMAGE_REF in one):
            output = output.replace(span, f"![](images/{figures}.jpg)\n")
            figures += sum(len(one.boxes) for one in markup.parse(span).spans)
        for span in (one for one in spans if mmd.IMAGE_REF not in one):
            output = mmd._with_plain_symbols(output.replace(span, ""))
        return output

    patch.setattr(artifacts, "to_mmd", to_mmd)


@mistake("NEW-099", "Boxes read as JSON", "postprocess", "coordinates that are no JSON")
def boxes_as_json(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """What is a Python literal but no JSON (tuples, a trailing comma, signs) is dropped."""
    right = markup.read_boxes

    def read_boxes(coordinates: str) -> tuple[tuple[Box, ...], str | None]:
        try:
            json.loads(coordinates)
        except ValueError as error:
            return (), str(error)
        return right(coordinates)

    patch.setattr(markup, "read_boxes", read_boxes)


@mistake("NEW-100", "Text escaped for HTML", "postprocess")
def html_escaped(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The server escapes <, > and & in its answer."""
    _decoded(patch, lambda right, self, ids: html.escape(right(self, ids), quote=False))
