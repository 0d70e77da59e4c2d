"""A session with one thing broken, to see what its checkpoint makes use of: what it does not miss, it cannot reveal.

Shapes: T fused vision tokens of an image, C channels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isqrt

import torch
from torch import Tensor, nn

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.presets import global_token_count
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.pipeline import Pipeline, Vision
from pytest_dsocr.engine.session import Session

WHITE = 1.0
"""A blank view's pixels; not 0, for views that sum to zero shut the vendor's gate, and vision would not run at all."""

Weights = Mapping[str, Tensor]


def _same_views(inputs: Inputs) -> Inputs:
    return inputs


def _same_tokens(fused_TC: Tensor, _: int) -> Tensor:
    return fused_TC


def _same_weights(_: Weights) -> Weights:
    return {}


@dataclass(frozen=True)
class Ablation:
    """One thing to break: what is seen, how it is arranged, or what it is multiplied with."""

    name: str
    views: Callable[[Inputs], Inputs] = _same_views
    tokens: Callable[[Tensor, int], Tensor] = _same_tokens
    """Takes an image's fused tokens ``[T, C]``, and how many of them are the crops'."""
    weights: Callable[[Weights], Weights] = _same_weights
    """Takes the model's parameters by name; gives those that change."""


class AblatedPipeline(Pipeline[KVCache]):
    """``whole`` with the views and the tokens of ``ablation``."""

    def __init__(self, whole: Pipeline[KVCache], ablation: Ablation) -> None:
        super().__init__(whole.model, whole.stages, autocast=whole.autocast)
        self.ablation = ablation

    def vision(self, inputs: Inputs) -> list[Vision]:
        """See worse views than ``inputs`` holds."""
        return super().vision(self.ablation.views(inputs))

    def vision_fusion(self, crops: Tensor | None, page: Tensor, grid: tuple[int, int]) -> Tensor:
        """Arrange the tokens in a worse way."""
        fused_TC = super().vision_fusion(crops, page, grid)
        return self.ablation.tokens(fused_TC, len(fused_TC) - global_token_count(isqrt(page.shape[1])))


@contextmanager
def broken(session: Session[KVCache], ablation: Ablation) -> Iterator[None]:
    """Break ``session``, and mend it at the end."""
    assert isinstance(session.model, nn.Module), "only the engine's own model has parameters to break"
    whole = session.pipeline
    session.pipeline = AblatedPipeline(whole, ablation)
    try:
        with _other_weights(dict(session.model.named_parameters()), ablation.weights):
            yield
    finally:
        session.pipeline = whole


@contextmanager
def _other_weights(parameters: Weights, change: Callable[[Weights], Weights]) -> Iterator[None]:
    others = change(parameters)
    kept = {name: parameters[name].clone() for name in others}
    try:
        _fill(parameters, others)
        yield
    finally:
        _fill(parameters, kept)


@torch.no_grad()
def _fill(parameters: Weights, values: Weights) -> None:
    for name, value in values.items():
        parameters[name].copy_(value)


def _blank_crops(inputs: Inputs) -> Inputs:
    return replace(inputs, images_crop=torch.full_like(inputs.images_crop, WHITE))


def _blank_page(inputs: Inputs) -> Inputs:
    return replace(inputs, images_ori=torch.full_like(inputs.images_ori, WHITE))


def _crops_by_columns(inputs: Inputs) -> Inputs:
    columns, rows = inputs.images_spatial_crop[0].tolist()
    order = torch.arange(columns * rows).view(rows, columns).T.flatten()
    return replace(inputs, images_crop=inputs.images_crop[order])


def _page_first(fused_TC: Tensor, of_crops: int) -> Tensor:
    crops, page, separator = fused_TC.split([of_crops, len(fused_TC) - of_crops - 1, 1])
    return torch.cat([page, crops, separator])


def _zero(pattern: str) -> Callable[[Weights], Weights]:
    """Give the change that sets to zero what has ``pattern`` in its name."""
    return lambda weights: {
        name: torch.zeros_like(weight) for name, weight in weights.items() if re.search(pattern, name)
    }


def _last_expert_only(weights: Weights) -> Weights:
    experts = {name: re.fullmatch(r"(.+\.experts\.)(\d+)(\..+)", name) for name in weights}
    last = max(int(found[2]) for found in experts.values() if found)
    return {name: weights[f"{found[1]}{last}{found[3]}"] for name, found in experts.items() if found}


INTACT = Ablation("intact")
ABLATIONS = (
    Ablation("crops blank", views=_blank_crops),
    Ablation("whole view blank", views=_blank_page),
    Ablation("crops laid out by columns", views=_crops_by_columns),
    Ablation("whole view before the crops", tokens=_page_first),
    Ablation("separator zero", weights=_zero(r"\bview_seperator$")),
    Ablation("newline zero", weights=_zero(r"\bimage_newline$")),
    Ablation("CLIP's positions zero", weights=_zero(r"\bvision_model\..*position_embedding")),
    Ablation("SAM's positions zero", weights=_zero(r"\bsam_model\.pos_embed$")),
    Ablation("SAM's relative positions zero", weights=_zero(r"\bsam_model\..*\brel_pos_[hw]$")),
    Ablation("shared experts off", weights=_zero(r"\bshared_experts\.down_proj")),
    Ablation("every routed expert the last", weights=_last_expert_only),
)
