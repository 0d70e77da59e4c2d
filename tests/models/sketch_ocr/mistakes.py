"""Mistakes in the sketch's encoder."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group
from pytest_dsocr.models.deepseek_ocr.mistakes.sam import sam_mistakes

from . import model

MASKS: dict[str, tuple[str, Callable[[int], Tensor]]] = {
    "mask-none": (
        "queries that see each other both ways",
        lambda count: torch.ones(2 * count, 2 * count, dtype=torch.bool),
    ),
    "mask-causal": (
        "places that see earlier places alone",
        lambda count: torch.ones(2 * count, 2 * count).tril().bool(),
    ),
}


def encoder_mistakes() -> Sequence[Group]:
    """Return the groups of the encoder's stages."""
    queries = Group("queries")
    queries.rows("", MASKS, _mask, "wide")
    queries.add("rotary-base", "a rotary base of 1e4 in place of 1e6", _base, "wide")
    return sam_mistakes(), queries, Group("projector")


def _mask(on: Target, visible: Callable[[int], Tensor]) -> None:
    on.changes.set(model, "visible", visible)


def _base(on: Target) -> None:
    on.changes.set(model, "BASE", 1e4)
