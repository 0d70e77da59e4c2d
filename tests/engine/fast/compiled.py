"""Compile each kernel as a step at full size launches it, for a GPU that need not be there; a process of its own.

Prints each kernel's name once it is compiled.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import triton
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pytest_dsocr.engine.architecture import DecoderConfig
from pytest_dsocr.engine.fast import fused
from pytest_dsocr.engine.fast.slots import Place
from pytest_dsocr.engine.fast.weights import FeedForward, LayerWeights, Norm

POINTERS = {torch.bfloat16: "*bf16", torch.float32: "*fp32", torch.int64: "*i64"}
ALIGNED = [["tt.divisibility", 16]]
ROOM = 2048


class Compiling:
    """Stands where a kernel stood, and compiles it instead of running it."""

    def __init__(self, kernel: Any, name: str, capability: int) -> None:
        self.kernel, self.name, self.target = kernel, name, GPUTarget("cuda", capability, 32)

    def __getitem__(self, grid: tuple[int, ...]) -> Compiling:
        return self

    def __call__(self, *arguments: object, num_warps: int, **named: object) -> None:
        given = {**dict(zip(self.kernel.arg_names, arguments, strict=False)), **named}
        types: dict[str, str] = {}
        constants: dict[tuple[int], object] = {}
        hints: dict[tuple[int], Any] = {}
        for at, parameter in enumerate(self.kernel.params):
            value = given[parameter.name]
            types[parameter.name] = "constexpr" if parameter.is_constexpr else _type(value)
            if parameter.is_constexpr:
                constants[at,] = value
            elif isinstance(value, Tensor):
                hints[at,] = ALIGNED
        source = ASTSource(fn=self.kernel, signature=types, constexprs=constants, attrs=hints)
        made = triton.compile(source, target=self.target, options={"num_warps": num_warps})
        assert made.asm["cubin"]
        print(self.name)  # noqa: T201


def _type(value: object) -> str:
    if isinstance(value, Tensor):
        return POINTERS[value.dtype]
    return "fp32" if isinstance(value, float) else "i32"


def of(*shape: int) -> Tensor:
    """A tensor of any values that takes no memory worth speaking of."""
    return torch.empty(1, dtype=torch.bfloat16).expand(shape)


def layer_of(config: DecoderConfig, *, dense: bool) -> LayerWeights:
    """One layer of these sizes."""
    width, inner, experts = config.hidden_size, config.moe_intermediate_size, config.n_routed_experts
    shared = config.intermediate_size if dense else inner * config.n_shared_experts
    none = of(0, 0, 0)
    feed = FeedForward(
        None if dense else of(experts, width),
        none if dense else of(experts, 2 * inner, width),
        none if dense else of(experts, width, inner),
        of(2 * shared, width),
        of(width, shared),
        0 if dense else config.num_experts_per_tok,
    )
    norm = Norm(of(width), config.rms_norm_eps)
    return LayerWeights(norm, of(3 * width, width), of(width, width), norm, feed, config.head_dim)


def main(capability: int) -> None:
    """Compile what two layers and the head launch."""
    for name in [name for name in vars(fused) if name.endswith("_kernel")]:
        setattr(fused, name, Compiling(getattr(fused, name), name, capability))
    config = DecoderConfig()
    width, heads, channels = config.hidden_size, config.num_attention_heads, config.head_dim
    x = torch.empty(1, width, dtype=torch.bfloat16)
    cache, table = of(1, heads, ROOM, channels), of(ROOM, channels // 2)
    place = Place(cache, cache, torch.zeros(1, dtype=torch.int64), table, table)
    for dense in (True, False):
        layer = layer_of(config, dense=dense)
        feed, norm = layer.feed, layer.before_feed
        fused.attend(fused.qkv(x, layer, place), place, round_scores=True)
        fused.project(x, layer.output, x)
        scores = None if feed.router is None else fused.score(x, norm, feed.router, rounded=True)
        inner, chosen, weights = fused.gate_up(x, norm, scores, feed)
        fused.down(inner, chosen, weights, feed, x)
    fused.score(x, norm, of(config.vocab_size, width), rounded=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))
