"""What an answer got right of its page: boxes are paired by their overlap, and texts by the boxes above them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np
import tokenizers
from rapidfuzz.distance import Levenshtein

from ci.training.rows import HELD_OUT, PageMaker, words_of
from pytest_dsocr.compare.boxes import match, overlaps
from pytest_dsocr.contract.markup import Markup, parse
from pytest_dsocr.engine.engine import Engine

CEILING = 640
"""New tokens at which an answer is cut off: well above what the longest page takes."""


@dataclass(frozen=True)
class Quality:
    """Counts that add up over pages."""

    pages: int = 0
    exact_pages: int = 0
    """With the true number of boxes."""
    ended: int = 0
    """By EOS, and not by the ceiling."""
    true_boxes: int = 0
    matched_boxes: int = 0
    """Pairs of a true and an answered box that overlap; no box is in two."""
    labelled_boxes: int = 0
    """Matched, and under the true label."""
    iou_sum: float = 0
    """Over the matched."""
    characters: int = 0
    errors: int = 0
    """Characters to insert, delete or replace; a text that is missing counts whole, one too many as well."""

    def __add__(self, other: Quality) -> Quality:
        return Quality(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def lines(self) -> Iterator[str]:
        """Yield it in words."""
        yield f"{self.pages} pages, {self.exact_pages} with the exact number of boxes, {self.ended} ended by EOS"
        found = f"{self.matched_boxes} of {self.true_boxes} boxes found, {self.labelled_boxes} under their label"
        yield f"{found}, mean IoU {self.iou_sum / max(self.matched_boxes, 1):.3f}"
        yield f"{self.errors / max(self.characters, 1):.1%} character errors"


def measure(truth: Markup, answer: Markup, *, ended: bool) -> Quality:
    """Hold an answer against what it should have been; ``ended`` says whether its end is an EOS."""
    true, answered = ([(k, box) for k, span in enumerate(m.spans) for box in span.boxes] for m in (truth, answer))
    ious = overlaps([box for _, box in true], [box for _, box in answered])
    pairs = match(ious)
    shared = np.zeros((len(truth.spans), len(answer.spans)))
    for a, b in pairs:
        shared[true[a][0], answered[b][0]] += ious[a][b]
    texts = match(shared)
    errors = Levenshtein.distance(truth.preamble, answer.preamble)
    errors += sum(Levenshtein.distance(truth.spans[a].text, answer.spans[b].text) for a, b in texts)
    for side, markup in enumerate((truth, answer)):
        paired = {pair[side] for pair in texts}
        errors += sum(len(span.text) for k, span in enumerate(markup.spans) if k not in paired)
    return Quality(
        pages=1,
        exact_pages=int(len(true) == len(answered)),
        ended=int(ended),
        true_boxes=len(true),
        matched_boxes=len(pairs),
        labelled_boxes=sum(truth.spans[true[a][0]].label == answer.spans[answered[b][0]].label for a, b in pairs),
        iou_sum=sum(ious[a][b] for a, b in pairs),
        characters=len(truth.preamble) + sum(len(span.text) for span in truth.spans),
        errors=errors,
    )


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
