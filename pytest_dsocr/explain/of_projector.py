"""What-ifs of the projector and of what it gets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine.fusion import square
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.explain.family import Bench, Family
from pytest_dsocr.explain.numbers import DTYPES

PROJECTOR = Family("projector")


def _rows(sam: Tensor) -> Tensor:
    return sam.flatten(2).transpose(1, 2)


Pairing = Callable[[Tensor, Tensor], Tensor]
"""Makes of CLIP's tokens and SAM's map what the projector gets."""
PAIRINGS: dict[str, tuple[str, Pairing]] = {
    "sam-first": ("SAM's features in front of CLIP's", lambda clip, sam: torch.cat([_rows(sam), clip[:, 1:]], -1)),
    "last-dropped": (
        "CLIP's last token dropped in place of its class token",
        lambda clip, sam: torch.cat([clip[:, :-1], _rows(sam)], -1),
    ),
    "sam-turned": (
        "SAM's map read column by column",
        lambda clip, sam: torch.cat([clip[:, 1:], _rows(sam.transpose(2, 3))], -1),
    ),
    "sam-reshaped": (
        "SAM's map reshaped, its channels not moved behind its places",
        lambda clip, sam: torch.cat([clip[:, 1:], sam.reshape(len(sam), -1, sam.shape[1])], -1),
    ),
    "clip-turned": (
        "CLIP's tokens read column by column",
        lambda clip, sam: torch.cat([_turned(clip[:, 1:]), _rows(sam)], -1),
    ),
    "clip-twice": (
        "CLIP's features in the place of SAM's",
        lambda clip, sam: torch.cat([clip[:, 1:], clip[:, 1:]], -1),
    ),
    "sam-twice": ("SAM's features in the place of CLIP's", lambda clip, sam: torch.cat([_rows(sam), _rows(sam)], -1)),
    "no-clip": (
        "zeros in the place of CLIP's features",
        lambda clip, sam: torch.cat([0 * clip[:, 1:], _rows(sam)], -1),
    ),
    "no-sam": ("zeros in the place of SAM's features", lambda clip, sam: torch.cat([clip[:, 1:], 0 * _rows(sam)], -1)),
    "interleaved": (
        "CLIP's and SAM's channels in turn",
        lambda clip, sam: torch.stack([clip[:, 1:], _rows(sam)], -1).flatten(2),
    ),
    "normed": (
        "a norm without weights in front of the projector",
        lambda clip, sam: _layer_norm(torch.cat([clip[:, 1:], _rows(sam)], -1)),
    ),
    "clip-normed": (
        "a norm without weights behind CLIP",
        lambda clip, sam: torch.cat([_layer_norm(clip[:, 1:]), _rows(sam)], -1),
    ),
    "units": (
        "CLIP's and SAM's features made of length one",
        lambda clip, sam: torch.cat([F.normalize(clip[:, 1:], dim=-1), F.normalize(_rows(sam), dim=-1)], -1),
    ),
    "sam-flipped": (
        "SAM's rows in the opposite order",
        lambda clip, sam: torch.cat([clip[:, 1:], _rows(sam.flip(2))], -1),
    ),
    "shifted": (
        "CLIP's tokens one place off, the class token in front",
        lambda clip, sam: torch.cat([clip.roll(1, 1)[:, 1:], _rows(sam)], -1),
    ),
    "summed": (
        "CLIP's and SAM's features added, then put twice",
        lambda clip, sam: torch.cat([clip[:, 1:] + _rows(sam)] * 2, -1),
    ),
}
"""They need CLIP and SAM to be of one width where both are in one place."""


def _turned(tokens: Tensor) -> Tensor:
    return square(tokens).transpose(1, 2).flatten(1, 2)


def _layer_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _pairs(on: Bench, pairing: Pairing) -> None:
    def projector(self: DeepseekOCR, clip: Tensor, sam: Tensor) -> Tensor:
        return self.project(pairing(clip, sam))

    on.changes.set(DeepseekOCR, "projector", projector)


def _projects(on: Bench, change: Callable[[Any, Tensor], Tensor]) -> None:
    linear = on.model.model.projector.layers
    on.changes.forward(linear, partial(change, linear))


def _columns(weight: Tensor, order: str) -> Tensor:
    half = weight.shape[1] // 2
    return torch.cat([weight[:, half:], weight[:, :half]], 1) if order == "halves" else weight.flip(1)


LINEARS: dict[str, tuple[str, Callable[[Any, Tensor], Tensor]]] = {
    "no-bias": ("the projector without its bias", lambda linear, x: F.linear(x, linear.weight)),
    "bias-twice": ("the projector's bias added twice", lambda linear, x: F.linear(x, linear.weight, 2 * linear.bias)),
    "gelu": ("GELU behind the projector", lambda linear, x: F.gelu(F.linear(x, linear.weight, linear.bias))),
    "gelu-front": ("GELU in front of the projector", lambda linear, x: F.linear(F.gelu(x), linear.weight, linear.bias)),
    "silu": ("SiLU behind the projector", lambda linear, x: F.silu(F.linear(x, linear.weight, linear.bias))),
    "relu": ("ReLU behind the projector", lambda linear, x: F.relu(F.linear(x, linear.weight, linear.bias))),
    "normed-out": (
        "a norm without weights behind the projector",
        lambda linear, x: _layer_norm(F.linear(x, linear.weight, linear.bias)),
    ),
    "unit-out": (
        "the projector's tokens made of length one",
        lambda linear, x: F.normalize(F.linear(x, linear.weight, linear.bias), dim=-1),
    ),
    "scaled-root": (
        "the projector's tokens multiplied by the root of their width",
        lambda linear, x: F.linear(x, linear.weight, linear.bias) * linear.weight.shape[0] ** 0.5,
    ),
    "divided-root": (
        "the projector's tokens divided by the root of their width",
        lambda linear, x: F.linear(x, linear.weight, linear.bias) / linear.weight.shape[0] ** 0.5,
    ),
    "halves": (
        "the halves of the projector's weight exchanged",
        lambda linear, x: F.linear(x, _columns(linear.weight, "halves"), linear.bias),
    ),
    "reshaped": (
        "the projector's weight transposed and reshaped",
        lambda linear, x: F.linear(x, linear.weight.T.reshape(linear.weight.shape), linear.bias),
    ),
}


def _rounded(linear: Any, x: Tensor, *, to: torch.dtype, what: str) -> Tensor:
    weight, bias = linear.weight, linear.bias
    if what == "runs":
        return F.linear(x.to(to), weight.to(to), bias.to(to)).to(x.dtype)
    if what == "weight":
        return F.linear(x, weight.to(to).to(x.dtype), bias)
    if what == "gets":
        return F.linear(x.to(to).to(x.dtype), weight, bias)
    return F.linear(x, weight, bias).to(to).to(x.dtype)


ROUNDED = {
    "weight": "the projector's weight rounded to",
    "gets": "what the projector gets rounded to",
    "gives": "what the projector gives rounded to",
    "runs": "the projector computed in",
}
for _name, _dtype in DTYPES.items():
    for _what, _words in ROUNDED.items():
        LINEARS[f"{_what}-{_name}"] = (f"{_words} {_name}", partial(_rounded, to=_dtype, what=_what))
for _key, (_words, _pairing) in PAIRINGS.items():
    PROJECTOR.add(
        _key,
        f"{_words} in front of the projector" if "projector" not in _words else _words,
        partial(_pairs, pairing=_pairing),
    )
for _key, (_words, _linear) in LINEARS.items():
    PROJECTOR.add(_key, _words, partial(_projects, change=_linear))
