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

from pytest_dsocr.contract import artifacts, inputs, markup, presets
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.presets import Grid, Preset
from pytest_dsocr.engine import engine, pipeline
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.layers.experts import MixtureOfExperts, Router
from pytest_dsocr.layers.sam import Sam
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.explain.catalogue.pixels import levels as levels_of
from pytest_dsocr.explain.mistake import Changes, model_of
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEFAULT
from pytest_dsocr.subjects.engine import EngineSubject

Plant = Callable[[pytest.MonkeyPatch, EngineSubject], None]
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

    def __call__(self, patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
        """Plant it."""
        self.plant(patch, subject)

    def put(self, subject: EngineSubject, changes: Changes) -> None:
        """Plant it until the changes are undone."""
        self.plant(changes.enter_context(pytest.MonkeyPatch.context()), subject)

    @property
    def cause(self) -> str:
        """What somebody did, in words."""
        return " ".join((getdoc(self.plant) or "").split())


def mistake(name: str, title: str, stage: str, page: str = ANY, *, unseen: str = "") -> Callable[[Plant], Planted]:
    """Make a mistake of the function below, whose docstring is the cause."""
    return lambda plant: Planted(name, title, stage, page, unseen, plant)


def core_of(subject: EngineSubject) -> Any:
    """Return everything of the model but its head."""
    return model_of(subject.engine).model


def run_instead(patch: pytest.MonkeyPatch, module: nn.Module, forward: Callable[..., Any]) -> None:
    """Have one module run another function. An attribute that is set would stay, before pytest 9.2."""
    patch.setitem(vars(module), "forward", forward)


def change_inputs(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change what is handed to the model, behind the contract's own checks."""
    right = inputs.prepare_inputs
    patch.setattr(inputs, "prepare_inputs", lambda *args, **how: change(right(*args, **how)))


def change_ids(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the ids and the mask, ``[S]`` each."""

    def changed(made: Inputs) -> Inputs:
        ids, mask = change(made.input_ids[0], made.images_seq_mask[0])
        return replace(made, input_ids=ids[None], images_seq_mask=mask[None])

    change_inputs(patch, changed)


def change_prompt(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the prompt that is asked for."""
    right = inputs.prepare_inputs
    patch.setattr(inputs, "prepare_inputs", lambda page, prompt, *rest, **how: right(page, change(prompt), *rest, **how))


def change_pixels(patch: pytest.MonkeyPatch, pixels: Any) -> None:
    """Change what makes pixels of levels; on the CPU, so that they do not depend on the device."""
    patch.setattr(inputs, "normalise", lambda levels: pixels(levels.cpu()).to(levels.device))


def change_crops(patch: pytest.MonkeyPatch, crops: Any) -> None:
    """Change what cuts an RGB page over a grid, row by row."""
    right = inputs.views

    def views(page: Image.Image, preset: Preset, grid: Grid) -> tuple[Tensor, Tensor]:
        whole, none = right(page, preset, (1, 1))
        made = crops(page, grid)
        return whole, levels_of(made) if made else none

    patch.setattr(inputs, "views", views)


def cut(page: Image.Image, grid: Grid) -> list[Image.Image]:
    """Stretch the RGB page over ``grid`` and give its crops row by row; none for ``(1, 1)``."""
    (columns, rows), crop_px = grid, DEFAULT.tiling.crop_px
    if columns * rows == 1:
        return []
    stretched = page.resize((columns * crop_px, rows * crop_px))
    corners = [(column * crop_px, row * crop_px) for row in range(rows) for column in range(columns)]
    return [stretched.crop((left, top, left + crop_px, top + crop_px)) for left, top in corners]


def resized(table_HWC: Tensor, size: int, **options: Any) -> Tensor:
    """Resize a square table as :func:`positions.resize_grid` does, but for some options."""
    if table_HWC.shape[0] == size:
        return table_HWC
    how: dict[str, Any] = {"mode": "bicubic", "antialias": True, "align_corners": False, **options}
    planes = table_HWC.float().permute(2, 0, 1)[None]
    return F.interpolate(planes, size=(size, size), **how)[0].permute(1, 2, 0).to(table_HWC.dtype)


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


def standing_still(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
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


def mixtures(subject: EngineSubject) -> list[MixtureOfExperts]:
    """Return the layers' experts."""
    return [layer.mlp for layer in core_of(subject).decoder_layers() if isinstance(layer.mlp, MixtureOfExperts)]


def unstack(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """Have the layers run each expert from its own weights, which on a GPU are views of two tensors for a step."""
    for mixture in mixtures(subject):
        patch.setattr(mixture, "_stacked", None)


def quantise_experts(patch: pytest.MonkeyPatch, subject: EngineSubject, largest: Any) -> None:
    """Round the experts' weights to 8 bits, by their largest value."""
    unstack(patch, subject)
    for mixture in mixtures(subject):
        for weight in mixture.experts.parameters():
            wide = weight.data.float()
            scale = largest(wide.abs()) / 127
            patch.setattr(weight, "data", ((wide / scale).round() * scale).to(weight.dtype))


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
        page = page if page.mode == "L" else page.convert("RGB")  # the contract resizes single channels too
        levels = torch.from_numpy(np.atleast_3d(np.asarray(page)).copy()).permute(2, 0, 1)[None].float()
        made = F.interpolate(levels, size=size[::-1], mode="bicubic", align_corners=False, **how)
        out = made[0].round().clamp(0, 255).byte()
        return Image.fromarray(out[0].numpy() if page.mode == "L" else out.permute(1, 2, 0).contiguous().numpy())

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


def change_ban(patch: pytest.MonkeyPatch, kind: Any) -> None:
    """Change the rule for n-grams of the engine's own loop."""

    def steps(right: Any, pipeline: Any, state: Any, prompts: Any, policy: Any, pad: int) -> Any:
        def ban(self: Any, tokens: Any) -> Any:
            return kind(self.no_repeat_ngram_size, tokens, self.ngram_window)

        own = type("Own", (type(policy),), {"ban": ban})(**vars(policy))
        return right(pipeline, state, prompts, own, pad)

    change_loop(patch, steps)


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


def tidied(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """clean_up_tokenization_spaces is on."""
    change_decoding(patch, lambda right, self, ids: re.sub(r" ([.,!?])", r"\1", right(self, ids)))


def greedy_groups(patch: pytest.MonkeyPatch, subject: EngineSubject) -> None:
    """(.*) in place of (.*?)."""
    right = artifacts.to_mmd

    def spans(text: str, form: Any) -> Any:
        found = re.search(r"<\|ref\|>(.*)<\|/ref\|><\|det\|>(.*)<\|/det\|>", text, re.S)
        return [markup.Match(found.start(), found.end(), found[1], found[2])] if found else []

    def to_mmd(text: str, form: Any) -> str:
        with pytest.MonkeyPatch.context() as own:
            own.setattr(markup, "find_spans", spans)
            return right(text, form)

    patch.setattr(artifacts, "to_mmd", to_mmd)
