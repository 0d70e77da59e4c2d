"""Mistakes in the text of tokens, in boxes, and in written files."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pytest_dsocr.contract import artifacts, drawing
from pytest_dsocr.contract.markup import Box, PixelBox
from pytest_dsocr.subjects.session import SessionSubject
from tests.exam.planting import FIGURES, TALL, change_decoding, instead, mistake


@mistake("THD-38", "Special tokens stand between blanks", "postprocess")
def spaced_out(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """spaces_between_special_tokens is left on, which joins special tokens and the text between them by blanks."""
    marks = re.compile(r"(<\|/?\w+\|>)")
    change_decoding(patch, lambda right, own, ids: " ".join(part for part in marks.split(right(own, ids)) if part))


@mistake("THD-39", "Figures are cut out of the page with its boxes", "postprocess", FIGURES)
def figures_with_boxes(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Boxes are drawn on the page itself before the figures are cut out, so that lines and names are in them."""

    def pictures(right: Any, page: Any, spans: Any, *rest: Any) -> Any:
        spoilt = right(drawing.draw_boxes(page, spans), spans, *rest[:-1], [])
        return {**spoilt, artifacts.OVERLAY: right(page, spans, *rest)[artifacts.OVERLAY]}

    instead(patch, artifacts, "_pictures", pictures)


@mistake("THD-40", "Boxes are placed on the padded page", "postprocess", TALL)
def on_padded_page(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Coordinates are taken for those of the square view, padding included, and the padding is subtracted."""

    def to_pixels(right: Any, box: Box, width: int, height: int) -> PixelBox:
        side = max(width, height)
        x, y = (side - width) // 2, (side - height) // 2
        x1, y1, x2, y2 = right(box, side, side)
        return PixelBox(x1 - x, y1 - y, x2 - x, y2 - y)

    instead(patch, drawing, "to_pixels", to_pixels)
