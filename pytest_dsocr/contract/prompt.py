"""Prompts: the model card's by name, the plain template, and the pieces between the images."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_dsocr.contract.special import IMAGE
from pytest_dsocr.foundation.errors import DsocrError

PROMPTS: Mapping[str, str] = {
    "markdown": "<image>\n<|grounding|>Convert the document to markdown.",
    "ocr": "<image>\n<|grounding|>OCR this image.",
    "free": "<image>\nFree OCR.",
    "figure": "<image>\nParse the figure.",
    "describe": "<image>\nDescribe this image in detail.",
}
"""The model card's prompts that need nothing filled in; :func:`locate` makes the one that does."""


def locate(phrase: str) -> str:
    """Give the prompt that asks where ``phrase`` is; raise ``DsocrError`` where it is empty."""
    if not phrase.strip():
        raise DsocrError("there is no phrase to locate; give the words to look for")
    return f"<image>\nLocate <|ref|>{phrase}<|/ref|> in the image."


def render(prompt: str) -> str:
    """Apply the vendor's plain template to a prompt, given by its name in :data:`PROMPTS` or as text.

    The template knows no roles and no separators: it strips the white space around the text.

    Raises:
        DsocrError: where the prompt is empty.
    """
    text = PROMPTS.get(prompt, prompt).strip()
    if not text:
        raise DsocrError(f"the prompt is empty; give a text, or one of the names {', '.join(PROMPTS)}")
    return text


def split_at_images(prompt: str, images: int) -> list[str]:
    """Render ``prompt`` and give the ``images + 1`` texts around its ``<image>`` placeholders.

    Raises:
        DsocrError: where there is not one placeholder for each image. The vendor would read a prompt without any
            twice, and drop surplus placeholders with the text between them.
    """
    pieces = render(prompt).split(IMAGE)
    placeholders = len(pieces) - 1
    if images and not placeholders:
        raise DsocrError(
            f"the prompt {prompt!r} has no {IMAGE} to put the image at; add it, usually in front, "
            f"or give one of the names {', '.join(PROMPTS)}"
        )
    if placeholders != images:
        raise DsocrError(
            f"the prompt has {placeholders} {IMAGE} placeholders and there are {images} images; "
            "give exactly one placeholder for each image"
        )
    return pieces
