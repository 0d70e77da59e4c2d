"""What-ifs of the norms in a transformer's blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from pytest_dsocr.engine import decoder, sam
from pytest_dsocr.explain.family import Bench, Family
from pytest_dsocr.explain.flows import Halves

NORMS = (nn.LayerNorm, sam.LayerNorm2d, decoder.RmsNorm)


def add_norms(family: Family, name: str, own: float, others: Sequence[float]) -> None:
    """Take what may be wrong with norms, whose epsilon is ``own``."""
    for eps in others:
        words = f"an epsilon of {eps:g} in place of {own:g} in the norms of {name}"
        family.add(f"epsilon-{eps:g}", words, partial(_epsilon, eps=eps, which=(0, 1)))
    for which, place in ((0, "first"), (1, "second")):
        for eps in others[:1]:
            words = f"an epsilon of {eps:g} in place of {own:g} in the {place} norm of {name}'s blocks"
            family.add(f"epsilon{which + 1}-{eps:g}", words, partial(_epsilon, eps=eps, which=(which,)))
    changes: dict[str, tuple[str, Callable[[Any, Tensor], Tensor]]] = {
        "no-gain": ("norms without their weights", lambda norm, x: _normed(norm, x, gain=False)),
        "no-shift": ("norms without their biases", lambda norm, x: _normed(norm, x, shift=False)),
        "one-more-gain": ("norms that scale by one plus their weights", lambda norm, x: _normed(norm, x, one=1.0)),
        "unbiased": ("norms whose variance is over one channel less", lambda norm, x: _normed(norm, x, unbiased=True)),
        "other-norm": (
            _others(name),
            lambda norm, x: _normed(norm, x, other=True),
        ),
        "epsilon-outside": ("norms whose epsilon is added to the root", lambda norm, x: _normed(norm, x, outside=True)),
        "norm-bfloat16": ("norms computed in bfloat16", lambda norm, x: _normed(norm, x, dtype=torch.bfloat16)),
        "norm-float16": ("norms computed in float16", lambda norm, x: _normed(norm, x, dtype=torch.float16)),
    }
    for key, (words, change) in changes.items():
        family.add(key, f"{words} in {name}", partial(_norms_run, change=change))


def _others(name: str) -> str:
    kinds = ("layer norms", "RMS norms") if name == "the decoder" else ("RMS norms", "layer norms")
    return " in place of ".join(kinds)


def _epsilon(on: Bench, eps: float, which: Sequence[int]) -> None:
    for block in on.blocks:
        halves = Halves.of(block)
        for norm in [(halves.norm1, halves.norm2)[k] for k in which]:
            on.changes.set(norm, "eps", eps)
    if len(which) > 1:
        for norm in _last(on):
            on.changes.set(norm, "eps", eps)


def _last(on: Bench) -> list[Any]:
    """Give the norm behind the decoder's last layer, where the blocks are the decoder's."""
    return [on.model.model.norm] if on.notes.get("stage") == "prefill" else []


def _norms_run(on: Bench, change: Callable[[Any, Tensor], Tensor]) -> None:
    for norm in (*on.modules(*NORMS), *_last(on)):
        on.changes.forward(norm, partial(change, norm))


def _normed(
    norm: Any,
    x: Tensor,
    *,
    gain: bool = True,
    shift: bool = True,
    one: float = 0.0,
    unbiased: bool = False,
    other: bool = False,
    outside: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Normalise the last axis as the norm does, but for what is wrong."""
    bias = getattr(norm, "bias", None)
    centres = (bias is not None) != other
    wide = x.to(dtype or torch.float32)
    centred = wide - wide.mean(-1, keepdim=True) if centres else wide
    variance = centred.pow(2).sum(-1, keepdim=True) / (wide.shape[-1] - unbiased)
    scaled = centred / (variance.sqrt() + norm.eps if outside else (variance + norm.eps).sqrt())
    weight = (norm.weight + one) if gain else torch.ones_like(norm.weight)
    out: Tensor = scaled.to(x.dtype) * weight
    return out + bias if bias is not None and shift else out
