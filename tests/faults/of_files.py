"""Mistakes in what a file, a batch or an empty page is taken for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageOps

from pytest_dsocr.contract import image
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.registry import fault

AGAIN = "a page read again, from another file or with another prompt"


@fault(
    "IMG-W9",
    "A palette's transparency on white",
    "tokenizer",
    "text appears or vanishes",
    "palette|transparency",
    "a palette with a transparent colour",
)
def palette_on_white(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Palettes are expanded with their transparency, and composited."""

    def upright(open_image: Any) -> Image.Image:
        page = ImageOps.exif_transpose(open_image())
        if "transparency" not in page.info:
            return page.convert("RGB")
        white = Image.new("RGBA", page.size, "white")
        white.alpha_composite(page.convert("RGBA"))
        return white.convert("RGB")

    patch.setattr(image, "_upright_rgb", upright)


@fault(
    "GAT-W1", "Vision of a page that sums to zero", "vision_fusion", "nothing", "gate", "a page half black, half white"
)
def no_gate(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The gate is taken for a check of the sequence's length alone."""
    patch.setattr(Inputs, "has_vision", property(lambda self: self.prompt_tokens != 1))


@fault(
    "BAT-W1", "Pages of a batch exchanged", "read", "another page's text", "another page|exchanged", "two pages at once"
)
def exchanged(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Answers come back in the order in which they are finished."""
    right = SessionSubject.read_many

    def read_many(self: SessionSubject, pages: list[Path], **how: Any) -> list[str]:
        return sorted(right(self, pages, **how), key=len)

    patch.setattr(SessionSubject, "read_many", read_many)


@fault("PAG-W1", "Readings kept by a file's name", "read", "the page before", "file by its name", AGAIN)
def kept_by_name(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The server keeps what it read by path and prompt, and does not look whether the file is another one by now."""
    _kept(patch, lambda page, how: (page, str(how)))


@fault("PAG-W2", "Readings kept by the page alone", "read", "another prompt's text", "without the prompt", AGAIN)
def kept_without_prompt(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The key is the image's content; the prompt is left out."""
    _kept(patch, lambda page, how: (page.read_bytes(), how["preset"], how["max_new_tokens"]))


def _kept(patch: pytest.MonkeyPatch, key_of: Callable[[Path, dict[str, Any]], Any]) -> None:
    right, kept = SessionSubject.read, dict[Any, str]()

    def read(self: SessionSubject, page: Path, **how: Any) -> str:
        key = key_of(page, how)
        if key not in kept:
            kept[key] = right(self, page, **how)
        return kept[key]

    patch.setattr(SessionSubject, "read", read)
