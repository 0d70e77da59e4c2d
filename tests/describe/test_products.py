"""Products with a fault whose numbers are measured: a bias counted otherwise, channels left out, fewer bits."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.describe.products import products_of
from pytest_dsocr.describe.rounding import FORMS, WITH_ZERO
from pytest_dsocr.explain.inside import of_inside
from pytest_dsocr.explain.mistake import Changes, blocks_of
from pytest_dsocr.explain.parts import ComputedPart
from pytest_dsocr.layers.norms import LayerNorm2d
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.inside import watch_inside
from pytest_dsocr.records.names import TensorName
from tests.describe.real import block, clean, engine, random

Plant = Callable[[Any, Tensor], Tensor]
NUMBERS = random(400, 64)
ROWS = NUMBERS[None, :40]


def linear(outputs: int = 48) -> nn.Linear:
    """Return a layer of 64 inputs."""
    made = nn.Linear(64, outputs)
    made.weight.data, made.bias.data = NUMBERS[40 : 40 + outputs].clone(), NUMBERS[300:].flatten()[:outputs].clone()
    return made


def best(module: nn.Module, given: Tensor, gave: Tensor) -> tuple[str, float]:
    """Return the words of the function that is nearest, and the share of the difference that it leaves."""
    with torch.no_grad():
        before = (gave - module(given)).norm()
        found = [(words, float((gave - of(given)).norm() / before)) for words, of in products_of(module, given, gave)]
    return min(found, key=lambda one: one[1], default=("", 1.0))


def with_bias(module: Any, x: Tensor, factors: tuple[float, ...] = (3.0,)) -> Tensor:
    """Return the output with the bias counted otherwise, by parts."""
    each = torch.tensor(factors).repeat_interleave(len(module.bias) // len(factors)) - 1
    more = each * module.bias
    out: Tensor = module(x) + (more[:, None, None] if x.ndim == 4 else more)
    return out


def without(module: Any, x: Tensor, channels: slice, factor: float = 0.0) -> Tensor:
    """Return the product in which some channels count otherwise."""
    factors = torch.ones(64)
    factors[channels] = factor
    out: Tensor = module(x * factors)
    return out


def in_forms(module: Any, x: Tensor, of_weight: str, of_input: str) -> Tensor:
    """Return the product of rounded factors."""
    forms = {"": torch.clone, **FORMS, **WITH_ZERO}
    return F.linear(forms[of_input](x), forms[of_weight](module.weight), module.bias)


BIASES: Mapping[str, tuple[nn.Module, tuple[float, ...]]] = {
    "the right output with its bias 3 times": (linear(), (3.0,)),
    "the right output with its bias 1.41 times (the root of 2)": (linear(), (2**0.5,)),
    "the product with the bias of the queries 5.66 times (the root of 32)": (linear(192), (32**0.5, 1, 1)),
    "the product with the bias of the queries 0.177 times (one over the root of 32) and the values 2 times": (
        linear(192),
        (32**-0.5, 1, 2),
    ),
    "the right output with its bias 4 times": (linear(192), (4.0, 4.0, 4.0)),
}


@pytest.mark.parametrize("words", BIASES)
def test_the_factor_of_a_bias_is_measured(words: str) -> None:
    module, factors = BIASES[words]
    with torch.no_grad():
        found, left = best(module, ROWS, with_bias(module, ROWS, factors))
    assert found == words
    assert left < 1e-4


@pytest.mark.parametrize(
    ("module", "given"),
    [
        (nn.LayerNorm(64), ROWS),
        (nn.Conv2d(3, 8, 2), random(1, 3, 9, 9)),
        (LayerNorm2d(8, 1e-6), random(1, 8, 9, 9)),
    ],
)
def test_norms_and_convolutions_have_a_bias_too(module: Any, given: Tensor) -> None:
    module.weight.data, module.bias.data = random(*module.weight.shape), random(len(module.bias)) + 1
    with torch.no_grad():
        found, left = best(module, given, with_bias(module, given))
    assert found == "the right output with its bias 3 times"
    assert left < 1e-4


@pytest.mark.parametrize(
    ("channels", "factor", "words"),
    [
        (slice(32, 64), 0.0, "without channels 32 to 63 of its 64 inputs"),
        (slice(5, 6), 0.0, "without channel 5 of its 64 inputs"),
        (slice(0, 64, 4), 0.0, "without channels 0, 4 and so on, every 4th of its 64 inputs"),
        (slice(0, 16), 2.0, "with channels 0 to 15 of its 64 inputs counted 2 times"),
    ],
)
def test_channels_that_are_left_out_are_named(channels: slice, factor: float, words: str) -> None:
    module = linear()
    with torch.no_grad():
        found, left = best(module, ROWS, without(module, ROWS, channels, factor))
    assert found == f"the product {words}"
    assert left < 1e-4


INT8, ROW8, UINT8 = (
    "int8 with one scale for the tensor",
    "int8 with a scale for each row",
    "uint8 with a scale and a zero for the tensor",
)
PAIRS = [
    (INT8, UINT8),
    (INT8, INT8),
    (ROW8, ROW8),
    ("int8 with a scale for each 32 values", "int8 with a scale for each 32 values"),
    ("int4 with a scale for each 32 values", ROW8),
    ("float8 (e4m3) with a scale for each row", "float8 (e4m3) with a scale for each row"),
    ("float8 (e4m3) with one scale for the tensor", "float8 (e4m3) with one scale for the tensor"),
    ("uint4 with a scale and a zero for each 32 values", "bfloat16"),
    ("float16", "float8 (e5m2)"),
    ("", "int8 with a scale for each row"),
]


@pytest.mark.parametrize("pair", PAIRS, ids=" x ".join)
def test_the_forms_of_weight_and_input_are_found_together(pair: tuple[str, str]) -> None:
    module = linear()
    with torch.no_grad():
        found, left = best(module, ROWS, in_forms(module, ROWS, *pair))
    of_weight = f"of the weight rounded to {pair[0]} and " if pair[0] else "with "
    assert found == f"the product {of_weight}the input rounded to {pair[1]}"
    assert left < 1e-3


def test_a_weight_with_a_zero_in_each_group_is_found_alone() -> None:
    module, words = linear(), "uint4 with a scale and a zero for each 32 values"
    with torch.no_grad():
        found, left = best(module, ROWS, in_forms(module, ROWS, words, ""))
    assert (found, left < 1e-3) == (f"the product with the weight rounded to {words}", True)


def q4_0(weight: Tensor) -> Tensor:
    """Round groups of 32 values as ggml's ``quantize_row_q4_0`` does."""
    groups = weight.unflatten(-1, (-1, 32))
    peak = groups.gather(-1, groups.abs().argmax(-1, keepdim=True))
    step = (peak / -8).half().float()
    out: Tensor = (((groups / step + 8.5).floor().clamp(0, 15) - 8) * step).flatten(-2)
    return out


def q4_1(weight: Tensor) -> Tensor:
    """Round groups of 32 values as ggml's ``quantize_row_q4_1`` does."""
    groups = weight.unflatten(-1, (-1, 32))
    low, high = groups.amin(-1, keepdim=True), groups.amax(-1, keepdim=True)
    step = (high - low) / 15
    code = ((groups - low) / step + 0.5).floor().clamp(0, 15)
    out: Tensor = (code * step.half().float() + low.half().float()).flatten(-2)
    return out


def mxfp4(weight: Tensor) -> Tensor:
    """Round groups of 32 values to the nearest number of e2m1 times a power of two, value by value."""
    numbers = torch.tensor([-6, -4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4, 6])
    out = torch.empty_like(weight)
    for row, start in product(range(len(weight)), range(0, weight.shape[1], 32)):
        group = weight[row, start : start + 32]
        scale = 2.0 ** (math.floor(math.log2(float(group.abs().max()))) - 2)
        nearest = (group[:, None] / scale - numbers).abs().argmin(1)
        out[row, start : start + 32] = numbers[nearest] * scale
    return out


def of_three_bits(weight: Tensor) -> Tensor:
    """Round each row to 7 levels."""
    step = weight.abs().amax(-1, keepdim=True) / 3
    return (weight / step).round() * step


GRIDS = {
    "16 levels, one end at the value of largest magnitude, in each 32 values (Q4_0)": q4_0,
    "16 levels from the smallest to the largest value, in each 32 values (Q4_1)": q4_1,
    "float4 (e2m1) times a power of two, in each 32 values (MXFP4)": mxfp4,
    "7 levels around zero, in each row": of_three_bits,
}


@pytest.mark.parametrize("words", GRIDS)
def test_the_grid_of_a_weight_is_found(words: str) -> None:
    module, rows = linear(), ROWS[:, :20]
    with torch.no_grad():
        found, left = best(module, rows, F.linear(rows, GRIDS[words](module.weight), module.bias))
    assert found == f"the product with the weight rounded to {words}"
    assert left < 0.01


def test_float8_in_squares_is_found() -> None:
    module = nn.Linear(256, 256, bias=False)
    module.weight.data = random(256, 256) * torch.logspace(0, 2, 256)
    weight = torch.empty(256, 256)
    for row, column in product((0, 128), repeat=2):
        part = module.weight.data[row : row + 128, column : column + 128]
        scale = part.abs().max() / 448
        weight[row : row + 128, column : column + 128] = (part / scale).to(torch.float8_e4m3fn).float() * scale
    given = random(30, 256)
    with torch.no_grad():
        found, left = best(module, given, F.linear(given, weight))
    assert (found, left < 0.01) == ("the product with the weight rounded to float8 (e4m3) in squares of 128", True)


def test_no_grid_is_named_for_a_weight_with_noise_of_its_size() -> None:
    module = linear()
    with torch.no_grad():
        noise = q4_0(module.weight) - module.weight
        _, left = best(module, ROWS, F.linear(ROWS, module.weight + noise.roll(1, 0), module.bias))
    assert left > 0.5


def test_no_number_fits_another_weight() -> None:
    module, other = linear(), linear()
    other.weight.data = other.weight.data.roll(1, 0)
    with torch.no_grad():
        _, left = best(module, ROWS, other(ROWS))
    assert left > 0.5


IN_CLIP: Mapping[str, tuple[str, Plant]] = {
    "`self_attn.qkv_proj` is the product with the bias of the queries 5.66 times (the root of 32)": (
        "self_attn.qkv_proj",
        partial(with_bias, factors=(32**0.5, 1, 1)),
    ),
    f"`mlp.fc2` is the product of the weight rounded to {INT8} and the input rounded to {UINT8}": (
        "mlp.fc2",
        partial(in_forms, of_weight=INT8, of_input=UINT8),
    ),
    "`mlp.fc2` is the product without channels": (
        "mlp.fc2",
        lambda module, x: module(x * (torch.arange(x.shape[-1]) < 99)),
    ),
}


@pytest.mark.parametrize("words", IN_CLIP)
def test_a_module_inside_of_a_block_is_described_by_its_numbers(words: str) -> None:
    path, plant = IN_CLIP[words]
    own = blocks_of(engine(), "clip")[0]
    module = own.get_submodule(path)
    usual = type(module).forward
    with Changes() as changes, torch.no_grad(), watch_inside(own) as calls:
        right = nn.Linear(module.in_features, module.out_features)
        right.load_state_dict(module.state_dict())
        changes.forward(module, lambda x: plant(right, x))
        own(block("clip.page/0").given)
    assert type(module).forward is usual
    found = of_inside(clean(), TensorName.parse("clip.page/0"), calls[-1])
    assert found is not None
    assert found.share > 0.99
    assert words in found.text


def inside_of_experts(plant: Callable[[nn.Linear], Plant | None]) -> str:
    """Return the description of the first layer of experts with other products in some of its linear layers."""
    name, given = TensorName.parse("prefill/1"), block("prefill/1").given
    own = blocks_of(engine(), PREFILL)[1]
    with Changes() as changes, torch.no_grad(), watch_inside(own) as calls:
        for module in [one for one in own.modules() if isinstance(one, nn.Linear)]:
            right = nn.Linear(module.in_features, module.out_features, bias=False)
            right.load_state_dict(module.state_dict())
            if (of := plant(module)) is not None:
                changes.forward(module, partial(of, right))
        ComputedPart(PREFILL, "prefill/1", given, (given,), 1, clean().image).compute(engine())
    found = of_inside(clean(), name, calls[-1])
    assert found is not None
    assert found.share > 0.99
    return found.text


def test_experts_that_get_other_tokens_are_paired_by_their_names() -> None:
    """Rounded queries change the tokens of some experts, so the engine's own run has calls of other sizes."""
    plant = partial(in_forms, of_weight=ROW8, of_input=UINT8)
    text = inside_of_experts(lambda module: plant)
    assert "`gate_proj`, `up_proj` and `down_proj` in all 8 modules of `mlp.experts`" in text
    assert f"are the product of the weight rounded to {ROW8} and the input rounded to {UINT8}" in text
    assert "right" not in text.partition(";")[2]


def on_grid(module: Any, x: Tensor) -> Tensor:
    return F.linear(x, q4_0(module.weight))


def test_experts_on_a_grid_are_named_in_one_phrase() -> None:
    routed = [one for expert in blocks_of(engine(), PREFILL)[1].mlp.experts for one in expert.children()]
    text = inside_of_experts(lambda module: on_grid if module in routed else None)
    names = "the outputs of `gate_proj`, `up_proj` and `down_proj` in all 8 modules of `mlp.experts` are the product"
    grid = "with the weight rounded to 16 levels, one end at the value of largest magnitude, in each 32 values (Q4_0)"
    assert text.endswith(f"; {names} {grid}; the same of `mlp.shared_experts` are right")


def test_some_experts_are_named_by_their_numbers() -> None:
    experts = blocks_of(engine(), PREFILL)[1].mlp.experts
    routed = [experts[number].up_proj for number in (1, 2, 3, 6)]
    text = inside_of_experts(lambda module: on_grid if module in routed else None)
    assert "the outputs of `up_proj` in `mlp.experts` 1 to 3 and 6 are the product with the weight rounded" in text
