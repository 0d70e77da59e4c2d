"""What-ifs of the linear layers in a transformer's blocks: activations, biases, and numbers that are rounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.engine.clip import quick_gelu
from pytest_dsocr.explain.family import Bench, Family

ACTIVATIONS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "tanh": ("the GELU approximated by tanh", partial(F.gelu, approximate="tanh")),
    "erf": ("the exact GELU", F.gelu),
    "quick": ("the quick GELU, x * sigmoid(1.702 x),", quick_gelu),
    "1.7": ("x * sigmoid(1.7 x)", lambda x: x * torch.sigmoid(1.7 * x)),
    "silu": ("SiLU", F.silu),
    "relu": ("ReLU", F.relu),
    "none": ("nothing", lambda x: x),
}
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


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
    for key, dtype in DTYPES.items():
        family.add(f"wholly-{key}", f"all of {name} in {key}", partial(_wholly, dtype=dtype))
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


def _wholly(on: Bench, dtype: torch.dtype) -> None:
    """Have the whole stage's weights in a dtype, and what comes into it."""
    core = on.model.model
    paths = {"sam": "sam_model", "clip": "vision_model"}
    homes = [core.get_submodule(paths[on.notes["stage"]])] if on.notes["stage"] in paths else [*on.notes["all_blocks"]]
    for parameter in [one for home in homes for one in home.parameters()]:
        on.changes.weight(parameter, parameter.data.to(dtype), own_dtype=False)
    entries = {"sam": "patch_embed", "clip": "embeddings"}
    for entry in [homes[0].get_submodule(entries[on.notes["stage"]])] if on.notes["stage"] in entries else []:
        on.changes.around(entry, lambda run, x: run(x.to(dtype)))
    for block in on.blocks:
        on.changes.around(block, lambda run, x, *rest: run(x.to(dtype), *rest))


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
