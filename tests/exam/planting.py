"""How a mistake of the exam is written down, and the places of a session that several of them change."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import getdoc
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from pytest_dsocr.contract import inputs, mmd
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine import pipeline, session
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.model import Core, DeepseekOCR
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.subjects.session import SessionSubject

Plant = Callable[[pytest.MonkeyPatch, SessionSubject], None]
"""Puts the mistake into the code and a loaded subject; undoing the patch takes it out again."""
ANY, CROPS, NO_CROPS, COLOUR = "any page", "a page with crops", "a page without crops", "a page in colour"
LONG, REPEATS, FIGURES = "a page of many tokens", "a page that repeats itself", "a page with figures"
TALL = "a page that is no square"
BICUBIC = Image.Resampling.BICUBIC


@dataclass(frozen=True)
class Planted:
    """One mistake, and where it first shows; see :func:`tests.faults.outcome.stage_of`."""

    id: str
    title: str
    stage: str
    page: str
    unseen: str
    """Why a default run passes it, where that is known: no page can show it, or what would show it is not there."""
    plant: Plant

    def __call__(self, patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
        """Plant it."""
        self.plant(patch, subject)

    @property
    def cause(self) -> str:
        """What somebody did, in words."""
        return " ".join((getdoc(self.plant) or "").split())


def mistake(name: str, title: str, stage: str, page: str = ANY, *, unseen: str = "") -> Callable[[Plant], Planted]:
    """Make a mistake of the function below, whose docstring is the cause."""
    return lambda plant: Planted(name, title, stage, page, unseen, plant)


def model_of(subject: SessionSubject) -> DeepseekOCR:
    """Return the engine's model behind a subject."""
    model = subject.session.model
    assert isinstance(model, DeepseekOCR)
    return model


def core_of(subject: SessionSubject) -> Core:
    """Return everything of the model but its head."""
    return model_of(subject).model


def run_instead(patch: pytest.MonkeyPatch, module: nn.Module, forward: Callable[..., Any]) -> None:
    """Have one module run another function. An attribute that is set would stay, before pytest 9.2."""
    patch.setitem(vars(module), "forward", forward)


def change_inputs(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change what is handed to the model, behind the contract's own checks."""
    right = inputs.prepare_inputs
    patch.setattr(inputs, "prepare_inputs", lambda *args: change(right(*args)))


def change_ids(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the ids and the mask, ``[S]`` each."""

    def changed(made: Inputs) -> Inputs:
        ids, mask = change(made.input_ids[0], made.images_seq_mask[0])
        return replace(made, input_ids=ids[None], images_seq_mask=mask[None])

    change_inputs(patch, changed)


def change_prompt(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the prompt that is asked for."""
    right = inputs.prepare_inputs
    patch.setattr(inputs, "prepare_inputs", lambda page, prompt, *rest: right(page, change(prompt), *rest))


def resized(table_HWC: Tensor, size: int, **options: Any) -> Tensor:
    """Resize a square table as :func:`positions.resize_grid` does, but for some options."""
    if table_HWC.shape[0] == size:
        return table_HWC
    how: dict[str, Any] = {"mode": "bicubic", "antialias": True, "align_corners": False, **options}
    return F.interpolate(table_HWC.permute(2, 0, 1)[None], size=(size, size), **how)[0].permute(1, 2, 0)


def change_cache(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the keys and values that a layer reads, given those of the cache and how many are new."""
    right = KVCache.append

    def append(self: KVCache, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> Any:
        return change(right(self, layer, keys, values, positions), keys.shape[2])

    patch.setattr(KVCache, "append", append)


def change_positions(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the positions of decode steps alone."""
    right = KVCache.positions

    def positions(self: KVCache, new: int, device: torch.device) -> Tensor:
        found = right(self, new, device)
        return change(self, found) if self.length else found

    patch.setattr(KVCache, "positions", positions)


def standing_still(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Every step has the first one's position."""
    first: dict[int, Tensor] = {}
    change_positions(patch, lambda cache, found: first.setdefault(id(cache), found))


def change_loop(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the steps of the loop, each the tokens of a row."""
    right = pipeline.generate
    patch.setattr(session, "generate", lambda *args: change(right, *args))


def change_decoding(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change how tokens become text."""
    right = Tokenizer.decode
    patch.setattr(Tokenizer, "decode", lambda self, ids: change(right, self, ids))


def tidied(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """clean_up_tokenization_spaces is on."""
    change_decoding(patch, lambda right, self, ids: re.sub(r" ([.,!?])", r"\1", right(self, ids)))


def greedy_groups(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """(.*) in place of (.*?)."""

    def spans(text: str) -> Any:
        found = re.search(r"<\|ref\|>(.*)<\|/ref\|><\|det\|>(.*)<\|/det\|>", text, re.S)
        return [(found.start(), found.end(1), found.start(2), found.end())] if found else []

    patch.setattr(mmd, "find_spans", spans)
