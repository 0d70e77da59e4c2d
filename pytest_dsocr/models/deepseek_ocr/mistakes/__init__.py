"""Mistakes in DeepSeek-OCR's encoder."""

from collections.abc import Sequence

from pytest_dsocr.explain.rows import Group
from pytest_dsocr.models.deepseek_ocr.mistakes.clip import clip_mistakes
from pytest_dsocr.models.deepseek_ocr.mistakes.projector import projector_mistakes
from pytest_dsocr.models.deepseek_ocr.mistakes.sam import sam_mistakes


def encoder_mistakes() -> Sequence[Group]:
    """Return the groups of the encoder's stages, in the order of the data."""
    return sam_mistakes(), clip_mistakes(), projector_mistakes()
