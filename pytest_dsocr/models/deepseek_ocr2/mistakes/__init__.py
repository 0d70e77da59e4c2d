"""Mistakes in DeepSeek-OCR-2's encoder."""

from collections.abc import Sequence

from pytest_dsocr.explain.rows import Group
from pytest_dsocr.models.deepseek_ocr.mistakes.sam import sam_mistakes
from pytest_dsocr.models.deepseek_ocr2.mistakes.projector import projector_mistakes
from pytest_dsocr.models.deepseek_ocr2.mistakes.tower import tower_mistakes


def encoder_mistakes() -> Sequence[Group]:
    """Return the groups of the encoder's stages, in the order of the data."""
    return sam_mistakes(), tower_mistakes(), projector_mistakes()
