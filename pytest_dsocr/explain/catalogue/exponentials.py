"""Approximations of the exponential that ports use for speed, and what is made of one: softmax and activations."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

Exponential = Callable[[Tensor], Tensor]
"""Exponential of each value, or what is made of one."""


def schraudolph(x: Tensor) -> Tensor:
    """Return e^x as Schraudolph (1999) computes it, within 4 %: a line between powers of two, written into the bits."""
    bits = (12102203.0 * x.float().clamp(-88.0, 88.0) + 1064866805.0).to(torch.int32)
    return torch.where(x >= -88.0, bits.view(torch.float32), 0.0)


def of_limit(x: Tensor, doublings: int) -> Tensor:
    """Return ``(1 + x / n) ** n``, with ``n`` two to the power of ``doublings``."""
    out: Tensor = (1 + x.float() / 2**doublings).clamp_min(0.0)
    for _ in range(doublings):
        out = out * out
    return out


EXPONENTIALS: Mapping[str, tuple[str, Exponential]] = {
    "schraudolph": ("an exponential by Schraudolph's formula", schraudolph),
    "limit-1024": ("an exponential by (1 + x / 1024) ** 1024", partial(of_limit, doublings=10)),
}


def softmax_of(exp: Exponential) -> Exponential:
    """Return the softmax over the last axis that is made of an exponential."""

    def softmax(scores: Tensor) -> Tensor:
        found = exp(scores - scores.amax(-1, keepdim=True))
        return found / found.sum(-1, keepdim=True)

    return softmax


def silu_of(exp: Exponential, factor: float = 1.0) -> Exponential:
    """Return ``x * sigmoid(factor * x)`` that is made of an exponential: SiLU, or the quick GELU with 1.702."""
    return lambda x: (x / (1 + exp(-factor * x))).to(x.dtype)


def gelu_of(exp: Exponential) -> Exponential:
    """Return the GELU by tanh that is made of an exponential."""
    return lambda x: (x / (1 + exp(-1.5957691216057308 * (x + 0.044715 * x**3)))).to(x.dtype)
