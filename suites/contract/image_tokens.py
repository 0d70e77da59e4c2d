"""A page's image tokens, counted and held against how many there must be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_dsocr.compare.verdict import Comparison, as_expected

if TYPE_CHECKING:
    from pytest_dsocr.observation.observation import InputsDigest

PAGE_SIDE, CROP_SIDE = 16, 10
"""Tokens along a side of Gundam's view of the page, and of a crop."""


def compare_image_tokens(inputs: InputsDigest, image_id: int, expected: int, why: str) -> list[Comparison]:
    """Compare how many ids, and how many True in the mask, stand for the image."""
    in_mask = sum(length for value, length in inputs.images_seq_mask if value)
    return [
        as_expected("input_ids/image", inputs.prompt_ids.count(image_id), expected, why),
        as_expected("images_seq_mask/image", in_mask, expected, why),
    ]


def resembling(found: int, grid: tuple[int, int]) -> str:
    """Name the usual mistake that gives so many image tokens for a grid of crops in Gundam; nothing for no mistake."""
    columns, rows = grid
    page, crops = PAGE_SIDE**2, CROP_SIDE**2 * columns * rows
    newlines = PAGE_SIDE + CROP_SIDE * rows
    mistakes = {
        page + crops + 1: "no newlines",
        page + crops + newlines: "no separator",
        page + crops + PAGE_SIDE + CROP_SIDE * columns * rows + 1: "a newline for each row of each crop",
        page + crops + PAGE_SIDE + CROP_SIDE * columns + 1: "columns and rows exchanged",
        page + PAGE_SIDE + 1: "no crops",
    }
    right = page + crops + newlines + 1
    return f"; as many as with {mistakes[found]}" if found in mistakes and found != right else ""
