"""Mistakes of the projector and of its inputs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine.fusion import square
from pytest_dsocr.explain.catalogue.blocks import NARROW, NOT_FINITE, rounded
from pytest_dsocr.explain.catalogue.numbers import linear_in
from pytest_dsocr.explain.mistake import NEVER_FILLED, Target
from pytest_dsocr.explain.rows import Group, phrase, runs
from pytest_dsocr.models.deepseek_ocr.model import DeepseekOCR


def projector_mistakes() -> Group:
    """Return the mistakes of the projector and of its inputs."""
    group = Group("projector", NOT_FINITE)
    for key, (words, pairing) in PAIRINGS.items():
        where = "{}" if "projector" in words else "{} in front of the projector"
        group.add(key, phrase(where, words), partial(_pairs, pairing=pairing))
    add_linear(group)
    return group


def add_linear(group: Group) -> None:
    """Add the mistakes of the projector's linear layer."""
    group.rows("", LINEARS, runs(_layers))
    for key, row in NARROW.items():
        for what, (words, compute) in ROUNDED.items():
            group.rows(what, {key: row}, runs(_layers, compute), words=words)


@dataclass(frozen=True)
class EncoderFeatures:
    """Inputs of the projector."""

    clip: Tensor
    """CLIP's tokens ``[B, 1 + P, C]``, the class token first."""
    map: Tensor
    """SAM's features ``[B, C, H, W]``."""

    @property
    def tokens(self) -> Tensor:
        """CLIP's tokens without the class token."""
        return self.clip[:, 1:]

    @property
    def rows(self) -> Tensor:
        """SAM's features row by row ``[B, P, C]``."""
        return self.map.flatten(2).transpose(1, 2)


def _layer_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _unit(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


Pairing = Callable[[EncoderFeatures], tuple[Tensor, ...]]
"""Return the tensors to join along their channels as the projector's input."""
PAIRINGS: dict[str, tuple[str, Pairing]] = {
    "sam-first": ("SAM's features before CLIP's", lambda v: (v.rows, v.tokens)),
    "last-dropped": ("CLIP's last token dropped in place of its class token", lambda v: (v.clip[:, :-1], v.rows)),
    "sam-turned": (
        "SAM's map read column by column",
        lambda v: (v.tokens, EncoderFeatures(v.clip, v.map.transpose(2, 3)).rows),
    ),
    "sam-reshaped": (
        "SAM's map reshaped, its channels not moved behind its places",
        lambda v: (v.tokens, v.map.reshape(len(v.map), -1, v.map.shape[1])),
    ),
    "clip-turned": (
        "CLIP's tokens read column by column",
        lambda v: (square(v.tokens).transpose(1, 2).flatten(1, 2), v.rows),
    ),
    "clip-twice": ("CLIP's features in the place of SAM's", lambda v: (v.tokens, v.tokens)),
    "sam-twice": ("SAM's features in the place of CLIP's", lambda v: (v.rows, v.rows)),
    "no-clip": ("zeros in the place of CLIP's features", lambda v: (0 * v.tokens, v.rows)),
    "no-sam": ("zeros in the place of SAM's features", lambda v: (v.tokens, 0 * v.rows)),
    "interleaved": ("CLIP's and SAM's channels in turn", lambda v: (torch.stack([v.tokens, v.rows], -1).flatten(2),)),
    "normed": (
        "a norm without weights in front of the projector",
        lambda v: (_layer_norm(torch.cat([v.tokens, v.rows], -1)),),
    ),
    "clip-normed": ("CLIP's features normed without weights", lambda v: (_layer_norm(v.tokens), v.rows)),
    "units": ("CLIP's and SAM's features made of length one", lambda v: (_unit(v.tokens), _unit(v.rows))),
    "shifted": ("CLIP's tokens one place off, the class token first", lambda v: (v.clip.roll(1, 1)[:, 1:], v.rows)),
}
"""Mistakes in joining CLIP's and SAM's features. Some need both to have the same width."""
LINEARS: dict[str, tuple[str, Callable[[Any, Tensor], Tensor]]] = {
    "no-bias": ("the projector without its bias", lambda linear, x: F.linear(x, linear.weight)),
    "bias-twice": ("the projector's bias added twice", lambda linear, x: F.linear(x, linear.weight, 2 * linear.bias)),
    "gelu": ("GELU behind the projector", lambda linear, x: F.gelu(_linear(linear, x))),
    "gelu-front": ("GELU in front of the projector", lambda linear, x: _linear(linear, F.gelu(x))),
    "silu": ("SiLU behind the projector", lambda linear, x: F.silu(_linear(linear, x))),
    "relu": ("ReLU behind the projector", lambda linear, x: F.relu(_linear(linear, x))),
    "normed-out": ("a norm without weights behind the projector", lambda linear, x: _layer_norm(_linear(linear, x))),
    "unit-out": ("the projector's tokens made of length one", lambda linear, x: _unit(_linear(linear, x))),
    "scaled-root": (
        "the projector's tokens multiplied by the root of their width",
        lambda linear, x: _linear(linear, x) * linear.weight.shape[0] ** 0.5,
    ),
    "divided-root": (
        "the projector's tokens divided by the root of their width",
        lambda linear, x: _linear(linear, x) / linear.weight.shape[0] ** 0.5,
    ),
    NEVER_FILLED: (
        "the projector's weights left as they were allocated",
        lambda linear, x: _linear(linear, x) * torch.nan,
    ),
    "reshaped": (
        "the projector's weight transposed and reshaped",
        lambda linear, x: F.linear(x, linear.weight.T.reshape(linear.weight.shape), linear.bias),
    ),
}
ROUNDED: dict[str, tuple[str, Callable[[Any, torch.dtype, Tensor], Tensor]]] = {
    "weight": (
        "the projector's weight rounded to {}",
        lambda linear, to, x: F.linear(x, rounded(linear.weight, to), linear.bias),
    ),
    "gets": ("the projector's input rounded to {}", lambda linear, to, x: _linear(linear, rounded(x, to))),
    "gives": ("the projector's output rounded to {}", lambda linear, to, x: rounded(_linear(linear, x), to)),
    "runs": ("the projector computed in {}", linear_in),
}


def _layers(on: Target) -> list[Any]:
    return [on.core.projector.layers]


def _linear(linear: Any, x: Tensor) -> Tensor:
    return F.linear(x, linear.weight, linear.bias)


def _pairs(on: Target, pairing: Pairing) -> None:
    def projector(self: DeepseekOCR, clip: Tensor, sam: Tensor) -> Tensor:
        return self.project(torch.cat(pairing(EncoderFeatures(clip, sam)), -1))

    on.changes.set(DeepseekOCR, "projector", projector)
