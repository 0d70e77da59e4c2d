"""Tensors of the embedded model on a real page, for descriptions of mistakes planted in them."""

from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.inputs import normalise, views
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.recompute import Clean, Segment
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.pages.page_list import shipped

PAGE = next(page for page in shipped("dev-3") if page.stem == "figures_201")
CUT = next(page for page in shipped("dev-3") if page.stem == "invoice_016")

PRESET = replace(DEEPSEEK_OCR.preset("gundam"), base_size=384)
"""A small view with bars, and crops."""


@cache
def engine() -> Engine[Any]:
    """Return the engine with the embedded checkpoint."""
    return Engine.from_checkpoint("mini")


@cache
def clean() -> Clean:
    """Return the right tensors of a page in the smallest preset."""
    return Clean(engine(), engine().prepare(PAGE, prompt="free", preset="tiny"))


class Block(NamedTuple):
    """Output and input of a block."""

    gave: Tensor
    given: Tensor


@cache
def block(what: str) -> Block:
    """Return the output and the input of a block, such as ``clip.page/0``."""
    segment = Segment(clean(), what, has_blocks=True)
    return Block(segment.compute(None), segment.block_input)


@cache
def crops() -> tuple[Tensor, Tensor]:
    """Return the levels of a page's view and of its crops, uint8."""
    page = load_image(CUT)
    return views(page, PRESET, PRESET.grid(*page.size))


@cache
def pixels() -> tuple[Tensor, Tensor]:
    """Return the pixels of a page's view and of its crops."""
    page, of_crops = crops()
    return normalise(page), normalise(of_crops)


def random(*shape: int) -> Tensor:
    """Return the same normal numbers each time, without a change of torch's own generator."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))
