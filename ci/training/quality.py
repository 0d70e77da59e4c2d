"""What an answer got right of its page: boxes that overlap a true one, and characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import tokenizers
from rapidfuzz.distance import Levenshtein

from ci.training.rows import HELD_OUT, PageMaker, words_of
from pytest_dsocr.compare.boxes import match, overlaps
from pytest_dsocr.contract.markup import Box, Markup, parse
from pytest_dsocr.engine.engine import Engine

CEILING = 640
"""New tokens at which an answer is cut off: well above what the longest page takes."""


@dataclass(frozen=True)
class Quality:
    """Counts that add up over pages."""

    pages: int = 0
    ended: int = 0
    """By EOS, and not by the ceiling."""
    true_boxes: int = 0
    matched_boxes: int = 0
    """Pairs of a true and an answered box that overlap; no box is in two."""
    characters: int = 0
    errors: int = 0
    """Characters to insert, delete or replace."""

    def __add__(self, other: Quality) -> Quality:
        return Quality(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def lines(self) -> Iterator[str]:
        """Yield it in words."""
        yield f"{self.pages} pages, {self.ended} ended by EOS"
        yield f"{self.matched_boxes} of {self.true_boxes} boxes found"
        yield f"{self.errors / max(self.characters, 1):.1%} character errors"


def measure(truth: Markup, answer: Markup, *, ended: bool) -> Quality:
    """Hold an answer against what it should have been; ``ended`` says whether its end is an EOS."""
    boxes, text = _boxes_of(truth), _text_of(truth)
    matched = match(overlaps(boxes, _boxes_of(answer)))
    errors = Levenshtein.distance(text, _text_of(answer))
    return Quality(1, int(ended), len(boxes), len(matched), len(text), errors)


def _boxes_of(markup: Markup) -> list[Box]:
    return [box for span in markup.spans for box in span.boxes]


def _text_of(markup: Markup) -> str:
    return "\n".join([markup.preamble, *(span.text for span in markup.spans)])


def read_held_out(checkpoint: Path, make_page: PageMaker, seeds: Sequence[int], preset: str = "gundam") -> Quality:
    """Read pages that no training saw with a checkpoint, and add up what was right."""
    assert max(seeds) < HELD_OUT
    session = Engine.from_checkpoint(str(checkpoint))
    words = words_of(tokenizers.Tokenizer.from_file(str(checkpoint / "tokenizer.json")))
    total = Quality()
    for seed in seeds:
        page = make_page(seed, words)
        result = session.run(page.image, prompt="markdown", preset=preset, max_new_tokens=CEILING)
        truth = parse(page.answer(grounded=True))
        total += measure(truth, result.markup, ended=result.finish_reason == "eos")
    return total
