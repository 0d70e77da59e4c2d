"""What-ifs that any transformer's blocks may have: residuals, norms, activations, weights and their numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.engine import clip, decoder, sam
from pytest_dsocr.engine.clip import quick_gelu
from pytest_dsocr.whatif.family import Bench, Family

NORMS = (nn.LayerNorm, sam.LayerNorm2d, decoder.RmsNorm)
ACTIVATIONS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "tanh": ("the GELU approximated by tanh", partial(F.gelu, approximate="tanh")),
    "erf": ("the exact GELU", F.gelu),
    "quick": ("the quick GELU, x * sigmoid(1.702 x),", quick_gelu),
    "silu": ("SiLU", F.silu),
    "relu": ("ReLU", F.relu),
    "none": ("nothing", lambda x: x),
}
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Halves:
    """A block's parts, whatever they are called there."""

    norm1: nn.Module
    attend: Callable[..., Tensor]
    norm2: nn.Module
    mlp: nn.Module

    @classmethod
    def of(cls, block: Any) -> Halves:
        """Find them in a block of SAM, CLIP or the decoder."""
        if isinstance(block, sam.Block):
            return cls(block.norm1, block._attend, block.norm2, block.mlp)
        if isinstance(block, clip.Layer):
            return cls(block.layer_norm1, block.self_attn, block.layer_norm2, block.mlp)
        return cls(block.input_layernorm, block.self_attn, block.post_attention_layernorm, block.mlp)


Flow = Callable[[Halves, Callable[[Tensor], Tensor], Tensor], Tensor]
"""Computes a block from its parts, its attention and its input."""


def _behind_norm(h: Halves, attend: Callable[[Tensor], Tensor], x: Tensor, first: bool, second: bool) -> Tensor:
    normed = h.norm1(x)
    x = (normed if first else x) + attend(normed)
    normed = h.norm2(x)
    return (normed if second else x) + h.mlp(normed)


def _second_from_input(h: Halves, attend: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return x + h.mlp(h.norm2(x + attend(h.norm1(x))))


def _post_norm(h: Halves, attend: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = h.norm1(x + attend(x))
    return h.norm2(x + h.mlp(x))


def _out_norm(h: Halves, attend: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x + h.norm1(attend(x))
    return x + h.norm2(h.mlp(x))


def _in_turn(
    h: Halves, attend: Callable[[Tensor], Tensor], x: Tensor, first: int = 1, second: int = 1, swapped: bool = False
) -> Tensor:
    norms = (h.norm2, h.norm1) if swapped else (h.norm1, h.norm2)
    x = first * x + attend(norms[0](x))
    return second * x + h.mlp(norms[1](x))


def _scaled(h: Halves, attend: Callable[[Tensor], Tensor], x: Tensor, a: float, m: float) -> Tensor:
    x = x + a * attend(h.norm1(x))
    return x + m * h.mlp(h.norm2(x))


FLOWS: dict[str, tuple[str, Flow]] = {
    "residual-behind-norms": (
        "residuals that are taken from behind the norms",
        partial(_behind_norm, first=True, second=True),
    ),
    "residual-behind-norm1": (
        "the first residual taken from behind the norm",
        partial(_behind_norm, first=True, second=False),
    ),
    "residual-behind-norm2": (
        "the second residual taken from behind the norm",
        partial(_behind_norm, first=False, second=True),
    ),
    "no-residual1": ("no residual around the attention", partial(_in_turn, first=0)),
    "no-residual2": ("no residual around the perceptron", partial(_in_turn, second=0)),
    "post-norm": ("the norms behind the residuals (post-norm)", _post_norm),
    "out-norm": ("the norms on what attention and perceptron give, not on what they get", _out_norm),
    "parallel": (
        "attention and perceptron side by side, both of the block's input",
        lambda h, attend, x: x + attend(h.norm1(x)) + h.mlp(h.norm2(x)),
    ),
    "one-norm": (
        "attention and perceptron side by side, behind the first norm",
        lambda h, attend, x: x + attend(h.norm1(x)) + h.mlp(h.norm1(x)),
    ),
    "second-from-input": ("the second residual taken from the block's input", _second_from_input),
    "no-norm1": (
        "no norm in front of the attention",
        lambda h, attend, x: (y := x + attend(x)) + h.mlp(h.norm2(y)),
    ),
    "no-norm2": ("no norm in front of the perceptron", lambda h, attend, x: (y := x + attend(h.norm1(x))) + h.mlp(y)),
    "norms-exchanged": ("its two norms exchanged", partial(_in_turn, swapped=True)),
    "mlp-first": (
        "the perceptron in front of the attention",
        lambda h, attend, x: (y := x + h.mlp(h.norm2(x))) + attend(h.norm1(y)),
    ),
    "no-attention": ("its attention left out", partial(_scaled, a=0, m=1)),
    "no-mlp": ("its perceptron left out", partial(_scaled, a=1, m=0)),
    "halved": ("attention and perceptron halved", partial(_scaled, a=0.5, m=0.5)),
}


def add_flows(family: Family, name: str) -> None:
    """Take what may be wrong with residuals and norms of each block of ``name``."""

    def plant(on: Bench, flow: Flow) -> None:
        for block in on.blocks:
            on.changes.forward(block, partial(_flowing, block, flow))

    for key, (words, flow) in FLOWS.items():
        family.add(key, f"in {name}'s blocks {words}", partial(plant, flow=flow))
    family.add("block-left-out", f"a block of {name} left out", partial(_another, by=1))
    family.add(
        "block-before", f"the block in front of it run once more in place of {name}'s block", partial(_another, by=-1)
    )
    family.add("block-twice", f"a block of {name} run twice", _twice)


def _flowing(block: Any, flow: Flow, x: Tensor, *rest: Any) -> Tensor:
    halves = Halves.of(block)
    return flow(halves, lambda y: halves.attend(y, *rest), x)


def _another(on: Bench, by: int) -> None:
    everything, first = on.notes["all_blocks"], on.notes["first"]
    for depth, block in enumerate(on.blocks, first):
        if 0 <= depth + by < len(everything):
            on.changes.forward(block, type(block).forward.__get__(everything[depth + by]))


def _twice(on: Bench) -> None:
    block = on.blocks[0]
    run = type(block).forward.__get__(block)
    on.changes.forward(block, lambda x, *rest: run(run(x, *rest), *rest))


def add_norms(family: Family, name: str, own: float, others: Sequence[float]) -> None:
    """Take what may be wrong with norms, whose epsilon is ``own``."""
    for eps in others:
        words = f"an epsilon of {eps:g} in place of {own:g} in the norms of {name}'s blocks"
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
            "layer norms in place of RMS norms, or the other way",
            lambda norm, x: _normed(norm, x, other=True),
        ),
        "epsilon-outside": ("norms whose epsilon is added to the root", lambda norm, x: _normed(norm, x, outside=True)),
        "norm-bfloat16": ("norms computed in bfloat16", lambda norm, x: _normed(norm, x, dtype=torch.bfloat16)),
        "norm-float16": ("norms computed in float16", lambda norm, x: _normed(norm, x, dtype=torch.float16)),
    }
    for key, (words, change) in changes.items():
        family.add(key, f"in {name}'s blocks {words}", partial(_norms_run, change=change))


def _epsilon(on: Bench, eps: float, which: Sequence[int]) -> None:
    for block in on.blocks:
        halves = Halves.of(block)
        for norm in [(halves.norm1, halves.norm2)[k] for k in which]:
            on.changes.set(norm, "eps", eps)


def _norms_run(on: Bench, change: Callable[[Any, Tensor], Tensor]) -> None:
    for norm in on.modules(*NORMS):
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
    out = scaled.to(x.dtype) * weight
    return out + bias if bias is not None and shift else out


def add_activations(family: Family, name: str, own: str, forward: Callable[..., Tensor], kind: type[nn.Module]) -> None:
    """Take other activations than ``own``; ``forward(act, module, x)`` runs a perceptron of class ``kind``."""

    def plant(on: Bench, act: Callable[[Tensor], Tensor]) -> None:
        for mlp in on.modules(kind):
            on.changes.forward(mlp, partial(forward, act, mlp))

    of_own = ACTIVATIONS[own][0].rstrip(",") if own in ACTIVATIONS else own
    for key, (words, act) in ACTIVATIONS.items():
        if key != own:
            family.add(
                f"activation-{key}",
                f"{name}'s {words} in place of {of_own}".replace("'s the", "'s"),
                partial(plant, act=act),
            )


def add_linears(family: Family, name: str, biased: Sequence[str], square: Sequence[str] = ()) -> None:
    """Take biases that are left out, and square weights transposed, of the linear layers by their names in a block."""
    for path in biased:
        words = f"the bias of {path} left out in {name}'s blocks"
        family.add(f"no-bias-{path}", words, partial(_of_linear, path=path, change=_without_bias))
    if len(biased) > 1:
        family.add(
            "no-biases",
            f"the biases of all linear layers left out in {name}'s blocks",
            partial(_no_biases, paths=biased),
        )
    for path in square:
        words = f"the weight of {path} transposed in {name}'s blocks"
        family.add(f"transposed-{path}", words, partial(_of_linear, path=path, change=_transposed))


def _of_linear(on: Bench, path: str, change: Callable[[Bench, Any], None]) -> None:
    for block in on.blocks:
        change(on, block.get_submodule(path))


def _without_bias(on: Bench, linear: Any) -> None:
    on.changes.weight(linear.bias, torch.zeros_like(linear.bias))


def _no_biases(on: Bench, paths: Sequence[str]) -> None:
    for path in paths:
        _of_linear(on, path, _without_bias)


def _transposed(on: Bench, linear: Any) -> None:
    on.changes.weight(linear.weight, linear.weight.data.T)


def add_numbers(family: Family, name: str) -> None:
    """Take numbers that are rounded: weights, what blocks get and what they give."""
    for key, dtype in DTYPES.items():
        family.add(
            f"weights-{key}",
            f"the weights of {name}'s blocks rounded to {key}",
            partial(_weights, to=partial(_rounded, dtype=dtype)),
        )
    family.add(
        "weights-int8",
        f"the weights of {name}'s blocks rounded to int8, a scale for each row",
        partial(_weights, to=_int8),
    )
    family.add(
        "weights-int8-tensor",
        f"the weights of {name}'s blocks rounded to int8, a scale for each tensor",
        partial(_weights, to=partial(_int8, by_row=False)),
    )
    family.add("weights-fp8", f"the weights of {name}'s blocks rounded to float8 (e4m3)", partial(_weights, to=_float8))
    for key, dtype in DTYPES.items():
        family.add(f"runs-{key}", f"{name}'s blocks computed in {key}", partial(_runs_in, dtype=dtype))
        family.add(f"gets-{key}", f"what {name}'s blocks get rounded to {key}", partial(_gets, dtype=dtype))
        family.add(f"gives-{key}", f"what {name}'s blocks give rounded to {key}", partial(_gives, dtype=dtype))
    family.add("inputs-tf32", f"the products in {name}'s blocks computed in TF32", _tf32)


def _rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype).to(value.dtype)


def _int8(value: Tensor, by_row: bool = True) -> Tensor:
    scale = (value.flatten(1).abs().amax(1) if by_row else value.abs().amax()[None]).clamp_min(1e-12) / 127
    scale = scale.view(-1, *(1 for _ in value.shape[1:]))
    return (value / scale).round().clamp(-127, 127) * scale


def _float8(value: Tensor) -> Tensor:
    return value.to(torch.float8_e4m3fn).to(value.dtype)


def _weights(on: Bench, to: Callable[[Tensor], Tensor]) -> None:
    for module in on.modules(nn.Linear, nn.Conv2d):
        on.changes.weight(module.weight, to(module.weight.data.float()))


def _runs_in(on: Bench, dtype: torch.dtype) -> None:
    for module in on.modules(nn.Linear, nn.Conv2d):
        on.changes.around(module, partial(_linear_in, module, dtype))


def _linear_in(module: Any, dtype: torch.dtype, run: Callable[..., Tensor], x: Tensor) -> Tensor:
    bias = None if module.bias is None else module.bias.to(dtype)
    if isinstance(module, nn.Linear):
        return F.linear(x.to(dtype), module.weight.to(dtype), bias).to(x.dtype)
    return run(x.to(dtype).to(x.dtype)).to(dtype).to(x.dtype)


def _tf32(on: Bench) -> None:
    for module in on.modules(nn.Linear):
        on.changes.weight(module.weight, _ten_bits(module.weight.data))
        on.changes.around(module, lambda run, x: run(_ten_bits(x)))


def _ten_bits(value: Tensor) -> Tensor:
    """Round float32 to the 10 bits of significand that TF32 has."""
    bits = value.float().contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def _gets(on: Bench, dtype: torch.dtype) -> None:
    for block in on.blocks:
        on.changes.around(block, lambda run, x, *rest: run(_rounded(x, dtype), *rest))


def _gives(on: Bench, dtype: torch.dtype) -> None:
    for block in on.blocks:
        on.changes.around(block, lambda run, *given: _rounded(run(*given), dtype))
