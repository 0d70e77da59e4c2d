"""Mistakes in the blocks of any transformer that round its numbers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.explain.catalogue.blocks import NARROW, TensorChange, of_blocks, rounded, rounding
from pytest_dsocr.explain.mistake import NEVER_FILLED, Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row, inside, runs, wraps
from pytest_dsocr.layers.rotary import Rope


def add_numbers(group: Group, name: str) -> None:
    """Add mistakes that round weights, inputs, computations and outputs of the blocks of ``name``."""
    weights: MistakeTable = {
        **rounding("rounded to {}"),
        "int8": Row("rounded to int8, a scale for each row", int8, "int8"),
        "int8-tensor": Row("rounded to int8, a scale for each tensor", partial(int8, first=0), "int8"),
        "fp8": Row("rounded to float8 (e4m3)", partial(rounded, dtype=torch.float8_e4m3fn), "fp8"),
        "int4": Row("rounded to 4 bits, a scale for 32 of a row", _int4, "int4"),
    }
    group.rows("weights", weights, _weights, words=f"the weights of {name}'s blocks {{}}")
    group.rows("runs", NARROW, runs(inside(nn.Linear), linear_in), words=f"{name}'s blocks computed in {{}}")
    gets = wraps(of_blocks, lambda run, dtype, x, *rest: run(rounded(x, dtype), *rest))
    gives = wraps(of_blocks, lambda run, dtype, *given: rounded(run(*given), dtype))
    group.rows("gets", NARROW, gets, words=f"the inputs of {name}'s blocks rounded to {{}}")
    group.rows("gives", NARROW, gives, words=f"the outputs of {name}'s blocks rounded to {{}}")
    group.rows("wholly", NARROW, _wholly, words=f"all of {name} in {{}}")
    group.add(NEVER_FILLED, f"weights of {name}'s blocks left as they were allocated", _never_filled)
    group.add("inputs-tf32", f"the products in {name}'s blocks computed in TF32", _tf32, precision="tf32")


def _never_filled(on: Target) -> None:
    for module in [*on.modules(nn.Linear)][:1]:
        on.changes.weight(module.weight, torch.full_like(module.weight, torch.nan))


def int8(value: Tensor, first: int = 1) -> Tensor:
    """Round values to int8, with one scale for all axes from ``first`` on."""
    axes = tuple(range(first % value.ndim, value.ndim))
    scale = value.abs().amax(axes, keepdim=True).clamp_min(1e-12) / 127
    return (value / scale).round() * scale


def _int4(value: Tensor) -> Tensor:
    rows = value.flatten(1)
    groups = F.pad(rows, (0, -rows.shape[1] % 32)).unflatten(1, (-1, 32))
    scale = groups.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 7
    whole: Tensor = ((groups / scale).round() * scale).flatten(1)
    return whole[:, : rows.shape[1]].reshape(value.shape)


def _weights(on: Target, to: TensorChange) -> None:
    for module in on.modules(nn.Linear, nn.Conv2d):
        on.changes.weight(module.weight, to(module.weight.data.float()))


def linear_in(module: Any, dtype: torch.dtype, x: Tensor) -> Tensor:
    """Run a linear layer in a dtype, and return the result in the input's dtype."""
    bias = None if module.bias is None else module.bias.to(dtype)
    return F.linear(x.to(dtype), module.weight.to(dtype), bias).to(x.dtype)


def _wholly(on: Target, dtype: torch.dtype) -> None:
    """Cast the weights and the input of the whole stage to a dtype."""
    stage = on.engine.family.stage.get(on.stage)
    homes = [on.model.get_submodule(stage.module)] if stage and stage.module else [*on.all_blocks]
    entry = [next(homes[0].children())] if stage and stage.module else []
    for parameter in [one for module in homes for one in module.parameters()]:
        on.changes.weight(parameter, parameter.data.to(dtype), own_dtype=False)
    for module in (*entry, *on.blocks):
        on.changes.around(module, lambda run, x, *rest: run(x.to(dtype), *(_cast(one, dtype) for one in rest)))


def _cast(given: Any, dtype: torch.dtype) -> Any:
    """Return what a block is given besides its input, a rotation or a mask, in a dtype; and a cache as it is."""
    if isinstance(given, Rope):
        return Rope(given.inverse_frequencies, given.positions, dtype)
    return given.to(dtype) if isinstance(given, Tensor) else given


def _tf32(on: Target) -> None:
    for module in on.modules(nn.Linear):
        on.changes.weight(module.weight, _ten_bits(module.weight.data))
        on.changes.around(module, lambda run, x: run(_ten_bits(x)))


def _ten_bits(value: Tensor) -> Tensor:
    """Round float32 to TF32, which has 10 bits of significand."""
    bits = value.float().contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
