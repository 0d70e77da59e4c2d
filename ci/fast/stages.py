"""Vision and prefill of the fast session beside the readable one's, on pages of a few and of many crops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch import Tensor

from ci.fast.timing import Sessions, in_turn
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.session import Session
from pytest_dsocr.pages.page_list import shipped

PAGES = ("invoice_016", "slide_1011")
"""Of 2 x 2 and of 4 x 2 crops."""
Work = Callable[[Session[Any]], object]


def stages(sessions: Sessions, rounds: int) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the milliseconds of each stage in both sessions, and the ratio."""
    for page in (path for path in shipped("dev-3") if path.stem in PAGES):
        inputs = sessions.readable.prepare(page)
        for name, work in _works(sessions.readable, inputs).items():
            ways = {"session": partial(work, sessions.readable), "fast": partial(work, sessions.fast)}
            yield f"{page.stem}: {name}", in_turn(ways, rounds, sessions.fast.model.device)


def _works(readable: Session[Any], inputs: Inputs) -> dict[str, Work]:
    """Give what to time, by name; each stage is given what the readable session makes in front of it."""
    views = {"page": inputs.images_ori, f"{len(inputs.images_crop)} crops": inputs.images_crop}
    sam = {name: readable.pipeline.encode("sam", pixels) for name, pixels in views.items()}
    [seen] = readable.pipeline.vision(inputs)
    works: dict[str, Work] = {f"sam, {name}": partial(_sam, pixels) for name, pixels in views.items()}
    works |= {f"clip, {name}": partial(_clip, features) for name, features in sam.items()}
    works["vision"] = lambda session: session.pipeline.vision(inputs)
    works[f"prefill, {inputs.prompt_tokens} positions"] = lambda session: session.pipeline.prefill_with(
        inputs, seen.vision_fusion
    )
    return works


def _sam(pixels: Tensor, session: Session[Any]) -> object:
    return session.pipeline.encode("sam", pixels)


def _clip(features: Tensor, session: Session[Any]) -> object:
    return session.pipeline.encode("clip", features)
