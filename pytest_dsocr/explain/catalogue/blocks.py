"""Mistakes in the blocks of any transformer: residuals, norms, linear layers, activations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.explain.catalogue.exponentials import EXPONENTIALS, gelu_of, silu_of
from pytest_dsocr.explain.mistake import NEVER_FILLED, Precision, Target, home_of
from pytest_dsocr.explain.rows import Group, MistakeTable, Row, inside, kin, runs
from pytest_dsocr.layers.activations import quick_gelu
from pytest_dsocr.layers.norms import LayerNorm2d, RmsNorm

TensorChange = Callable[[Tensor], Tensor]
DTYPES: dict[Precision, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}
NARROW: MistakeTable = {key: Row(key, dtype, key) for key, dtype in DTYPES.items()}
NOT_FINITE = {Symptom.NOT_FINITE: ("wholly-float16", NEVER_FILLED, "float16", "runs-float16")}
NORMS = (nn.LayerNorm, LayerNorm2d, RmsNorm)
ACTIVATIONS: dict[str, Row] = {
    "tanh": Row("the GELU approximated by tanh", partial(F.gelu, approximate="tanh"), is_small=True),
    "erf": Row("the exact GELU", F.gelu, is_small=True),
    "quick": Row("the quick GELU, x * sigmoid(1.702 x),", quick_gelu, is_small=True),
    "1.7": Row("x * sigmoid(1.7 x)", lambda x: x * torch.sigmoid(1.7 * x), is_small=True),
    "silu": Row("SiLU", F.silu),
    **{
        f"quick-{key}": Row(f"the quick GELU with {words}", silu_of(exp, 1.702))
        for key, (words, exp) in EXPONENTIALS.items()
    },
    **{
        f"tanh-{key}": Row(f"the GELU by tanh with {words}", gelu_of(exp)) for key, (words, exp) in EXPONENTIALS.items()
    },
    "relu": Row("ReLU", F.relu),
    "none": Row("the identity", lambda x: x),
}


def rounded(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Round values to a dtype and keep their own."""
    return value.to(dtype).to(value.dtype)


def unit(x: Tensor) -> Tensor:
    """Norm channels by their root mean square."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rounding(words: str, wrap: Callable[[TensorChange], Any] = lambda change: change) -> MistakeTable:
    """Return a row for each narrow dtype, with what ``wrap`` makes of the function that rounds values to it."""
    return {key: Row(words.format(key), wrap(partial(rounded, dtype=dtype)), key) for key, dtype in DTYPES.items()}


PARTS = (
    ("norm1", "attend", "norm2", "mlp"),
    ("layer_norm1", "self_attn", "layer_norm2", "mlp"),
    ("input_layernorm", "self_attn", "post_attention_layernorm", "mlp"),
)
"""Names of a block's parts in the vendors' code."""


@dataclass(frozen=True)
class Halves:
    """Parts of a block under common names."""

    norm1: TensorChange
    attend: Callable[..., Tensor]
    norm2: TensorChange
    mlp: TensorChange

    @classmethod
    def of(cls, block: Any) -> Halves:
        """Find the parts of a block of an encoder or of the decoder."""
        names = next(names for names in PARTS if all(hasattr(block, name) for name in names))
        return cls(*(getattr(block, name) for name in names))


def of_blocks(on: Target) -> Sequence[Any]:
    """Find the blocks."""
    return on.blocks


Flow = Callable[[Halves, Tensor], Tensor]
"""Compute a block from its parts and its input."""
FLOWS: dict[str, tuple[str, Flow]] = {
    "residual-behind-norms": (
        "residuals that are taken from behind the norms",
        lambda h, x: h.norm2(y := h.norm1(x) + h.attend(h.norm1(x))) + h.mlp(h.norm2(y)),
    ),
    "residual-behind-norm1": (
        "the first residual taken from behind the norm",
        lambda h, x: (y := h.norm1(x) + h.attend(h.norm1(x))) + h.mlp(h.norm2(y)),
    ),
    "residual-behind-norm2": (
        "the second residual taken from behind the norm",
        lambda h, x: h.norm2(y := x + h.attend(h.norm1(x))) + h.mlp(h.norm2(y)),
    ),
    "no-residual1": ("no residual around the attention", lambda h, x: (y := h.attend(h.norm1(x))) + h.mlp(h.norm2(y))),
    "no-residual2": ("no residual around the perceptron", lambda h, x: h.mlp(h.norm2(x + h.attend(h.norm1(x))))),
    "post-norm": (
        "the norms behind the residuals (post-norm)",
        lambda h, x: h.norm2((y := h.norm1(x + h.attend(x))) + h.mlp(y)),
    ),
    "out-norm": (
        "the norms on what attention and perceptron give, not on what they get",
        lambda h, x: (y := x + h.norm1(h.attend(x))) + h.norm2(h.mlp(y)),
    ),
    "parallel": (
        "attention and perceptron side by side, both of the block's input",
        lambda h, x: x + h.attend(h.norm1(x)) + h.mlp(h.norm2(x)),
    ),
    "one-norm": (
        "attention and perceptron side by side, behind the first norm",
        lambda h, x: x + h.attend(h.norm1(x)) + h.mlp(h.norm1(x)),
    ),
    "second-from-input": (
        "the second residual taken from the block's input",
        lambda h, x: x + h.mlp(h.norm2(x + h.attend(h.norm1(x)))),
    ),
    "no-norm1": ("no norm in front of the attention", lambda h, x: (y := x + h.attend(x)) + h.mlp(h.norm2(y))),
    "no-norm2": ("no norm in front of the perceptron", lambda h, x: (y := x + h.attend(h.norm1(x))) + h.mlp(y)),
    "norms-exchanged": ("the two norms exchanged", lambda h, x: (y := x + h.attend(h.norm2(x))) + h.mlp(h.norm1(y))),
    "mlp-first": (
        "the perceptron in front of the attention",
        lambda h, x: (y := x + h.mlp(h.norm2(x))) + h.attend(h.norm1(y)),
    ),
    "no-attention": ("the attention left out", lambda h, x: x + h.mlp(h.norm2(x))),
    "no-mlp": ("the perceptron left out", lambda h, x: x + h.attend(h.norm1(x))),
}


def _flowing(block: Any, flow: Flow, x: Tensor, *rest: Any) -> Tensor:
    halves = Halves.of(block)
    return flow(replace(halves, attend=lambda y: halves.attend(y, *rest)), x)


def _another(on: Target, by: int) -> None:
    for place, block in enumerate(on.blocks, on.first + by):
        if place >= len(on.all_blocks):
            _skipped(block, on)
        elif place >= 0:
            on.changes.forward(block, type(block).forward.__get__(on.all_blocks[place]))


def _skipped(block: Any, on: Target) -> None:
    on.changes.forward(block, lambda x, *_: x)


def _exchanged(on: Target) -> None:
    first, second = on.all_blocks[on.first :][:2]
    on.changes.forward(first, type(first).forward.__get__(second))
    if second in on.blocks:
        on.changes.forward(second, type(first).forward.__get__(first))


def _twice(on: Target) -> None:
    on.changes.around(on.blocks[0], lambda run, x, *rest: run(run(x, *rest), *rest))


def add_flows(group: Group, name: str) -> None:
    """Add mistakes in the residuals and norms of each block of ``name``, and their order."""
    group.rows("", FLOWS, runs(of_blocks, _flowing), words=f"{{}} in {name}'s blocks")
    group.add("block-left-out", f"a block of {name} left out", partial(_another, by=1), spans_blocks=True)
    words = f"a block of {name} replaced by a second run of the block in front of it"
    group.add("block-before", words, partial(_another, by=-1), spans_blocks=True)
    group.add("blocks-exchanged", f"two neighbouring blocks of {name} exchanged", _exchanged, spans_blocks=True)
    group.add("block-skipped", f"a block of {name} that gives what it gets", lambda on: _skipped(on.blocks[0], on))
    group.add("block-twice", f"a block of {name} run twice", _twice)


def normed(
    norm: Any,
    x: Tensor,
    *,
    dim: int | tuple[int, ...] = -1,
    gain: bool = True,
    shift: bool = True,
    one: float = 0.0,
    unbiased: bool = False,
    other: bool = False,
    outside: bool = False,
    eps: float | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Normalise over ``dim``, with changes; maps ``[B, C, H, W]`` have their channels first."""
    bias, eps, wide = getattr(norm, "bias", None), norm.eps if eps is None else eps, x.to(dtype)
    if (bias is None) != other:  # root mean square
        centred, variance = wide, wide.pow(2).mean(dim, keepdim=True)
    else:
        centred = wide - wide.mean(dim, keepdim=True)
        variance = wide.var(dim, keepdim=True, correction=int(unbiased))
    scaled = centred / (variance.sqrt() + eps if outside else (variance + eps).sqrt())
    shape = (-1, *(1 for _ in x.shape[2:])) if dim != -1 else (-1,)
    out: Tensor = scaled.to(x.dtype) * ((norm.weight + one).view(shape) if gain else 1)
    return out if bias is None or not shift else out + bias.view(shape)


NORMED: MistakeTable = {
    "no-gain": ("norms without their weights", {"gain": False}),
    "no-shift": ("norms without their biases", {"shift": False}),
    "one-more-gain": ("norms that scale by one plus their weights", {"one": 1.0}),
    "unbiased": Row("norms whose variance is over one channel less", {"unbiased": True}, is_small=True),
    "other-norm": ("RMS norms in place of layer norms", {"other": True}),
    "epsilon-outside": Row("norms whose epsilon is added to the root", {"outside": True}, is_small=True),
    **kin("norm", {key: Row(f"norms computed in {key}", {"dtype": dtype}, key) for key, dtype in DTYPES.items()}),
}


def add_norms(group: Group, name: str, own: float, others: Sequence[float], *, are_rms: bool = False) -> None:
    """Add mistakes in the norms of ``name``; their epsilon is ``own``, and ``others`` are wrong ones."""
    where = name if are_rms else f"{name}'s blocks"  # stages of RMS norms have one more, after their blocks
    for eps in others:
        words = f"an epsilon of {eps:g} in place of {own:g} in the norms of {where}"
        group.add(f"epsilon-{eps:g}", words, partial(_epsilon, eps=eps), kind="epsilon", is_small=True)
    for which, place in enumerate(("first", "second")):
        words = f"an epsilon of {others[0]:g} in place of {own:g} in the {place} norm of {name}'s blocks"
        plant = partial(_epsilon, eps=others[0], which=(which,))
        group.add(f"epsilon{which + 1}-{others[0]:g}", words, plant, kind="epsilon", is_small=True)
    changes = dict(NORMED)
    if are_rms:
        changes["other-norm"] = ("layer norms in place of RMS norms", {"other": True})
        del changes["no-shift"], changes["unbiased"]  # RMS norms have neither biases nor a variance
    run_so = runs(lambda on: [*on.modules(*NORMS), *_last(on)], lambda norm, how, x: normed(norm, x, **how))
    group.rows("", changes, run_so, words=f"{{}} in {where}")


def _epsilon(on: Target, eps: float, which: Sequence[int] = (0, 1)) -> None:
    norms = [(halves.norm1, halves.norm2)[one] for halves in map(Halves.of, on.blocks) for one in which]
    for norm in (*norms, *(_last(on) if len(which) > 1 else ())):
        on.changes.set(norm, "eps", eps)


def _last(on: Target) -> list[Any]:
    """Return the norm after the stage's last block, if there is one and the whole stage is changed."""
    norm = getattr(home_of(on.engine, on.stage)[0], "norm", None)
    return [] if norm is None else [norm]


def add_activations(group: Group, name: str, own: str, forward: Callable[..., Tensor], kind: type[nn.Module]) -> None:
    """Add other activations than ``own``; ``forward(act, module, x)`` runs a perceptron of class ``kind``."""
    of_own = ACTIVATIONS[own].words.rstrip(",")
    others = {key: row for key, row in ACTIVATIONS.items() if key != own}
    for key, row in others.items():
        others[key] = row._replace(words=f"{name}'s {row.words} in place of {of_own}".replace("'s the", "'s"))
    group.rows("activation", others, runs(inside(kind), lambda mlp, act, x: forward(act, mlp, x)))


def add_linears(group: Group, name: str, biased: Sequence[str], square: Sequence[str] = ()) -> None:
    """Add mistakes in linear layers: biases left out, and square weights transposed."""
    biases = {path: (f"the bias of {path}", (path,)) for path in biased}
    group.rows("no-bias", biases, _no_biases, words=f"{{}} left out in {name}'s blocks")
    if biased:
        words = f"the biases of all linear layers left out in {name}'s blocks"
        group.add("no-biases", words, partial(_no_biases, paths=biased))
    squares = {path: (path, path) for path in square}
    group.rows("transposed", squares, _transposed, words=f"the weight of {{}} transposed in {name}'s blocks")


def _no_biases(on: Target, paths: Sequence[str]) -> None:
    for linear in [block.get_submodule(path) for path in paths for block in on.blocks]:
        on.changes.weight(linear.bias, torch.zeros_like(linear.bias))


def _transposed(on: Target, path: str) -> None:
    for linear in [block.get_submodule(path) for block in on.blocks]:
        on.changes.weight(linear.weight, linear.weight.data.T)
