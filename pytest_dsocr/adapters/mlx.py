"""Implementations in mlx: their arrays as tensors, the results of their modules, and their cache."""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pytest_dsocr.contract import GRID, PIXELS
from pytest_dsocr.models.spec import VIEWS


def to_torch(value: Any) -> Tensor:
    """Return an array of mlx as a tensor; floating point becomes float32."""
    mx: Any = importlib.import_module("mlx.core")
    is_float = mx.issubdtype(value.dtype, mx.floating)
    return torch.from_numpy(np.array(value.astype(mx.float32) if is_float else value))


def to_mlx(value: Tensor, dtype: str = "") -> Any:
    """Return a tensor as an array of mlx; floating point becomes ``dtype``, or else float32."""
    mx: Any = importlib.import_module("mlx.core")
    made = mx.array((value.float() if value.is_floating_point() else value).numpy())
    return made.astype(getattr(mx, dtype)) if dtype else made


def inputs_of(given: Mapping[str, Any], pixels: Sequence[Tensor]) -> dict[str, Tensor]:
    """Return the inputs of a page: ids, mask and grid of mlx, and the pixels of the crops and of the pages."""
    return {
        "input_ids": to_torch(given["input_ids"]).long(),
        "images_seq_mask": to_torch(given["images_seq_mask"]).bool(),
        GRID: to_torch(given[GRID]).long(),
        **dict(zip(PIXELS, pixels, strict=True)),
    }


@contextmanager
def watched(model: Any, modules: Mapping[str, str]) -> Iterator[Mapping[str, list[Any]]]:
    """Keep what modules of a model return, by stage; ``modules`` are their names, which may be replaced meanwhile."""
    whole = {name: getattr(model, name) for name in modules.values()}
    seen: dict[str, list[Any]] = {stage: [] for stage in modules}
    try:
        for stage, name in modules.items():
            setattr(model, name, _Watched(whole[name], seen[stage]))
        yield seen
    finally:
        for name, module in whole.items():
            setattr(model, name, module)


@dataclass(frozen=True)
class _Watched:
    """A module of mlx whose results are kept."""

    module: Any
    seen: list[Any]

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run the module, and keep its result."""
        self.seen.append(self.module(*args, **named))
        return self.seen[-1]


def vision_of(embeds: Any, seen: Mapping[str, list[Any]], inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the seams of vision: the prompt's vectors at its image tokens, and each stage's crops and page."""
    seams = {"vision_fusion": to_torch(embeds)[inputs["images_seq_mask"]]}
    for stage, results in seen.items():
        views = [to_torch(value) for value in results]
        if len(inputs[GRID]) > 1:
            views = [torch.cat(views)]  # several pages, none of which is cut
        elif len(views) > 1:
            views = [torch.cat(views[:-1]), views[-1]]  # a crop, or all, at each call
        seams |= {f"{stage}.{place}": value for place, value in zip(VIEWS[-len(views) :], views, strict=True)}
    return seams


def embedded(embed: Callable[[Any], Any], inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Tensor:
    """Return the vectors of a prompt's ids, with these features at its image tokens."""
    embeds = to_torch(embed(to_mlx(inputs["input_ids"])))
    if vision_fusion is not None:
        embeds[inputs["images_seq_mask"]] = vision_fusion.to(embeds.dtype)
    return embeds


@dataclass(frozen=True)
class MlxCache:
    """A view of a cache of mlx; each layer's ``state`` is its keys and its values."""

    stored: list[Any]

    @property
    def length(self) -> int:
        """Number of positions in the cache."""
        return int(self.stored[0].state[0].shape[2])

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.stored)

    def keys(self, layer: int) -> Tensor:
        """Return a layer's keys, ``[1, G, S, D]``."""
        return to_torch(self.stored[layer].state[0])

    def values(self, layer: int) -> Tensor:
        """Return a layer's values, ``[1, G, S, D]``."""
        return to_torch(self.stored[layer].state[1])


@dataclass
class MlxState:
    """Cache and logits of the current decode step."""

    cache: MlxCache
    logits: Tensor
