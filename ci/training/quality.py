"""What one answer got right of its page, in counts that add up over pages.

Boxes are paired by their overlap, and blocks by the boxes that they share; a text is then held against the text of
the block that it is paired with. So what an answer says of the right place in other words is an error of text, and
what it says of another place is one of boxes and of text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ci.training.sequences import edit_distance, out_of_order, repeats
from pytest_dsocr.compare.boxes import match, overlaps
from pytest_dsocr.contract.markup import Box, Markup, Span

TITLES = ("title", "sub_title")
GOOD_IOU = 0.5
TOLERATED_REPEATS = 2
"""A word may come twice in a row by chance."""

_TOKENS = re.compile(r"<[^<>]*>|\w+|[^\w\s]")


@dataclass(frozen=True)
class PageQuality:
    """Counts of one page."""

    true_boxes: int
    answered_boxes: int
    matched_boxes: int
    """Pairs of a true and an answered box that overlap; no box is in two."""
    iou_sum: float
    """Over the matched."""
    good_boxes: int
    """Matched with an IoU above one half."""
    labelled_boxes: int
    """Matched, and under the true label."""
    title_characters: int
    """In the true titles and sub-titles, as the answer should write them: ``# `` and ``## `` count."""
    title_errors: int
    """Characters to insert, delete or replace; a title that is missing counts whole, one too many as well."""
    text_characters: int
    """In all other true texts."""
    text_errors: int
    moved_blocks: int
    """The fewest of the paired blocks that must be taken out for the rest to be in reading order."""
    ended: bool
    """By EOS, not by the ceiling."""
    degenerate: bool
    """Whether it turns in a circle: see :func:`is_degenerate`."""

    @property
    def surplus_boxes(self) -> int:
        """Boxes too many; negative where some are missing."""
        return self.answered_boxes - self.true_boxes


def measure(truth: Markup, answer: Markup, *, ended: bool) -> PageQuality:
    """Hold an answer against what it should have been.

    Args:
        truth: of :meth:`~ci.training.page.Page.answer`. That to free OCR is one text without spans.
        answer: the model's.
        ended: whether its end is an EOS.
    """
    boxes = [_boxes(markup) for markup in (truth, answer)]
    ious = overlaps([box for _, box in boxes[0]], [box for _, box in boxes[1]])
    pairs = match(ious)
    spans = [(boxes[0][a][0], boxes[1][b][0]) for a, b in pairs]
    blocks = _paired_blocks(spans, [ious[a][b] for a, b in pairs], len(truth.spans), len(answer.spans))
    errors = _text_errors(truth, answer, blocks)
    characters = _characters(truth.spans) + Counter(text=len(truth.preamble))
    return PageQuality(
        true_boxes=len(boxes[0]),
        answered_boxes=len(boxes[1]),
        matched_boxes=len(pairs),
        iou_sum=sum(ious[a][b] for a, b in pairs),
        good_boxes=sum(ious[a][b] > GOOD_IOU for a, b in pairs),
        labelled_boxes=sum(truth.spans[a].label == answer.spans[b].label for a, b in spans),
        title_characters=characters["title"],
        title_errors=errors["title"],
        text_characters=characters["text"],
        text_errors=errors["text"],
        moved_blocks=out_of_order([b for _, b in blocks]),
        ended=ended,
        degenerate=is_degenerate(truth, answer),
    )


def is_degenerate(truth: Markup, answer: Markup) -> bool:
    """Say whether ``answer`` turns in a circle.

    It does where a run of words comes more than twice in a row, and more often than any does in ``truth``; or a run of
    spans with the same boxes does so at all. Labels and tags are words too. Coordinates are not, for a circle may
    drift down the page.
    """
    allowed = max(TOLERATED_REPEATS, repeats(_words(truth)))
    return repeats(_words(answer)) > allowed or repeats(_spans(answer)) > 1


def _boxes(markup: Markup) -> list[tuple[int, Box]]:
    """Give every box with the number of its span."""
    return [(k, box) for k, span in enumerate(markup.spans) for box in span.boxes]


def _paired_blocks(
    spans: Sequence[tuple[int, int]], ious: Sequence[float], true: int, answered: int
) -> list[tuple[int, int]]:
    """Pair each true block with the span that its boxes overlap most."""
    shared = np.zeros((true, answered))
    for pair, overlap in zip(spans, ious, strict=True):
        shared[pair] += overlap
    return match(shared)


def _text_errors(truth: Markup, answer: Markup, blocks: Sequence[tuple[int, int]]) -> Counter[str]:
    """Count the errors of pairs, and the characters of blocks that are missing and of spans too many."""
    errors = Counter(text=edit_distance(truth.preamble, answer.preamble))
    for a, b in blocks:
        errors[_group(truth.spans[a])] += edit_distance(truth.spans[a].text, answer.spans[b].text)
    missing = _without(truth.spans, {a for a, _ in blocks})
    surplus = _without(answer.spans, {b for _, b in blocks})
    return errors + _characters(missing) + _characters(surplus)


def _characters(spans: Iterable[Span]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for span in spans:
        counts[_group(span)] += len(span.text)
    return counts


def _without(spans: Sequence[Span], paired: Container[int]) -> Iterator[Span]:
    return (span for k, span in enumerate(spans) if k not in paired)


def _group(span: Span) -> Literal["title", "text"]:
    return "title" if span.label in TITLES else "text"


def _words(markup: Markup) -> list[str]:
    parts = [markup.preamble, *(part for span in markup.spans for part in (span.label, span.text))]
    return [word for part in parts for word in _TOKENS.findall(part)]


def _spans(markup: Markup) -> list[tuple[str, tuple[Box, ...]]]:
    return [(span.label, span.boxes) for span in markup.spans]
