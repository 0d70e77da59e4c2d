"""The truth of a shipped page: what is on it and where, in a JSON file of the same name beside the image."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ci.training.page import Block, Page, Rect, Word
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.foundation.errors import DsocrError

TRUTH_SUFFIX = ".json"


def load_truth(path: Path) -> Page:
    """Read a page and the truth that lies beside it, in a file of the same name that ends in ``.json``.

    Raises:
        DsocrError: where one of the two is missing or cannot be read.
    """
    image, beside = load_image(path), path.with_suffix(TRUTH_SUFFIX)
    try:
        truth = json.loads(beside.read_text(encoding="utf-8"))
        return Page(truth["kind"], truth["seed"], image, tuple(_block(block) for block in truth["blocks"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DsocrError(f"{beside} holds no truth of {path.name} ({error!r}); give a page that has one") from error


def truth_of(page: Page) -> dict[str, Any]:
    """Give a page's truth as :func:`load_truth` reads it, rects to a hundredth of a pixel."""
    return {"kind": page.kind, "seed": page.seed, "blocks": [_block_json(block) for block in page.blocks]}


def _block(block: dict[str, Any]) -> Block:
    words = tuple(Word(word["text"], Rect(*word["rect"])) for word in block["words"])
    return Block(block["label"], tuple(Rect(*rect) for rect in block["rects"]), block["text"], words)


def _block_json(block: Block) -> dict[str, Any]:
    return {
        "label": block.label,
        "rects": [_rounded(rect) for rect in block.rects],
        "text": block.text,
        "words": [{"text": word.text, "rect": _rounded(word.rect)} for word in block.words],
    }


def _rounded(rect: Rect) -> list[float]:
    return [round(side, 2) for side in rect]
