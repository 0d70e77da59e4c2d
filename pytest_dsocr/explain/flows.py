"""What-ifs that any transformer's blocks may have: residuals, places of norms, blocks left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from pytest_dsocr.engine import clip, sam
from pytest_dsocr.explain.family import Bench, Family


@dataclass(frozen=True)
class Halves:
    """A block's parts, whatever they are called there."""

    norm1: Callable[[Tensor], Tensor]
    attend: Callable[..., Tensor]
    norm2: Callable[[Tensor], Tensor]
    mlp: Callable[[Tensor], Tensor]

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
        family.add(key, f"{words} in {name}'s blocks", partial(plant, flow=flow))
    family.add("block-left-out", f"a block of {name} left out", partial(_another, by=1))
    family.add(
        "block-before", f"the block in front of it run once more in place of {name}'s block", partial(_another, by=-1)
    )
    family.add("blocks-exchanged", f"two neighbouring blocks of {name} exchanged", _exchanged)
    family.add("block-skipped", f"a block of {name} that gives what it gets", _skipped)
    family.add("block-twice", f"a block of {name} run twice", _twice)


def _flowing(block: Any, flow: Flow, x: Tensor, *rest: Any) -> Tensor:
    halves = Halves.of(block)
    return flow(halves, lambda y: halves.attend(y, *rest), x)


def _another(on: Bench, by: int) -> None:
    everything, first = on.notes["all_blocks"], on.notes["first"]
    for depth, block in enumerate(on.blocks, first):
        if depth + by >= len(everything):
            on.changes.forward(block, lambda x, *_: x)
        elif depth + by >= 0:
            on.changes.forward(block, type(block).forward.__get__(everything[depth + by]))


def _exchanged(on: Bench) -> None:
    first, second = on.notes["all_blocks"][on.notes["first"] :][:2]
    on.changes.forward(first, type(first).forward.__get__(second))
    if second in on.blocks:
        on.changes.forward(second, type(first).forward.__get__(first))


def _skipped(on: Bench) -> None:
    on.changes.forward(on.blocks[0], lambda x, *_: x)


def _twice(on: Bench) -> None:
    block = on.blocks[0]
    run = type(block).forward.__get__(block)
    on.changes.forward(block, lambda x, *rest: run(run(x, *rest), *rest))
