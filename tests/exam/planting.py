"""How a mistake of the exam is written down, and the places of a session that several of them change."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import getdoc
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from pytest_dsocr.contract import inputs, mmd, presets
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine import engine, pipeline
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.decoder import Rope
from pytest_dsocr.engine.experts import MixtureOfExperts, Router
from pytest_dsocr.engine.model import Core
from pytest_dsocr.engine.sam import Sam
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.explain.mistake import Changes
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.subjects.session import SessionSubject
from tests.conftest import model_of

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

    def put(self, subject: SessionSubject, changes: Changes) -> None:
        """Plant it until the changes are undone."""
        self.plant(changes.enter_context(pytest.MonkeyPatch.context()), subject)

    @property
    def cause(self) -> str:
        """What somebody did, in words."""
        return " ".join((getdoc(self.plant) or "").split())


def mistake(name: str, title: str, stage: str, page: str = ANY, *, unseen: str = "") -> Callable[[Plant], Planted]:
    """Make a mistake of the function below, whose docstring is the cause."""
    return lambda plant: Planted(name, title, stage, page, unseen, plant)


def core_of(subject: SessionSubject) -> Core:
    """Return everything of the model but its head."""
    return model_of(subject.session).model


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


def change_rope(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the frequencies and positions of the rotations, given the weights' dtype; a cache keeps its own."""
    right = Rope.__init__

    def init(self: Rope, inverse: Tensor, positions: Tensor, dtype: torch.dtype) -> None:
        inverse, moved = change(inverse, positions, dtype)
        right(self, inverse, moved, dtype)
        self.positions = positions

    patch.setattr(Rope, "__init__", init)


def change_scores(patch: pytest.MonkeyPatch, scores: Any) -> None:
    """Change how a router scores tokens."""

    def forward(self: Router, x: Tensor) -> tuple[Tensor, Tensor]:
        weights, chosen = torch.topk(scores(self, x), self.experts_per_token, dim=-1, sorted=False)
        return chosen, weights.float() * self.scale

    patch.setattr(Router, "forward", forward)


def mixtures(subject: SessionSubject) -> list[MixtureOfExperts]:
    """Return the layers' experts."""
    return [layer.mlp for layer in core_of(subject).decoder_layers() if isinstance(layer.mlp, MixtureOfExperts)]


def quantise_experts(patch: pytest.MonkeyPatch, subject: SessionSubject, largest: Any) -> None:
    """Round the experts' weights to 8 bits, by their largest value."""
    for mixture in mixtures(subject):
        for weight in mixture.experts.parameters():
            scale = largest(weight.data.abs()) / 127
            patch.setattr(weight, "data", (weight.data / scale).round() * scale)


def encode_at_most(patch: pytest.MonkeyPatch, views: int, rest: Any) -> None:
    """Encode the first views; ``rest`` makes the others of what was encoded."""
    right = Sam.forward

    def forward(self: Sam, pixels: Tensor) -> Tensor:
        made = right(self, pixels[:views])
        return torch.cat([made, rest(made).expand(max(len(pixels) - views, 0), *made.shape[1:])])

    patch.setattr(Sam, "forward", forward)


def resize_by_torch(patch: pytest.MonkeyPatch, **how: Any) -> None:
    """Resize pages bicubically by torch."""

    def resize(page: Image.Image, size: tuple[int, int], *_: Any, **__: Any) -> Image.Image:
        levels = torch.from_numpy(np.asarray(page.convert("RGB")).copy()).permute(2, 0, 1)[None].float()
        made = F.interpolate(levels, size=size[::-1], mode="bicubic", align_corners=False, **how)
        return Image.fromarray(made[0].round().clamp(0, 255).byte().permute(1, 2, 0).numpy())

    patch.setattr(Image.Image, "resize", resize)


def choose_grid(patch: pytest.MonkeyPatch, apart: Any, area_px: int) -> None:
    """Choose the grid that is least apart from a page's ratio; of two the larger, where half its area is filled."""
    tiling = DEFAULT.tiling

    def crop_grid(width: int, height: int, _: Any) -> tuple[int, int]:
        if width <= tiling.crop_px and height <= tiling.crop_px:
            return 1, 1
        best, least = tiling.grids[0], math.inf
        for columns, rows in tiling.grids:
            distance = apart(width / height, columns / rows)
            if distance < least or (distance == least and width * height > 0.5 * area_px**2 * columns * rows):
                best, least = (columns, rows), distance
        return best

    patch.setattr(presets, "crop_grid", crop_grid)


def change_loop(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the steps of the loop, each the tokens of a row."""
    right = pipeline.generate
    patch.setattr(engine, "generate", lambda *args: change(right, *args))


def end_where_repeated(patch: pytest.MonkeyPatch, times: int) -> None:
    """End an output where its last eight tokens were repeated often enough."""

    def steps(right: Any, *args: Any) -> Any:
        said: list[int] = []
        for tokens in right(*args):
            said.append(tokens[0])
            yield tokens
            if len(said) >= 8 * times and said[-8 * times :] == said[-8:] * times:
                return

    change_loop(patch, steps)


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
