"""Cost of a part of the model: the operations of its products, and the least bytes that it moves.

Conventions: a multiplication with its addition is two operations. A product includes the zeros of padding, and
causal attention all pairs of a query and a key. ``torch.utils.flop_counter`` and kernels that skip nothing agree.

Bytes are those that must be moved: a module that multiplies reads its input and writes its output, once.
Norms, biases, activations and residuals are not counted, nor is what stays inside a module, such as scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from pytest_dsocr.base.words import count, listed
from pytest_dsocr.models import STAGES

ITEM_BYTES = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2}
UNCOUNTED: Mapping[tuple[str, str], str] = {
    ("sdpa", "cpu"): "aten::_scaled_dot_product_flash_attention_for_cpu",
    ("flash_attention_2", "cuda"): "flash_attn::_flash_attn_forward",
}
"""Operators without a formula in ``torch.utils.flop_counter``, by attention and kind of device. All others are counted:
``eager`` as the two products that it is, SDPA on a GPU by its kernels, on ``meta`` as products again."""

WHOLE = ""
"""Name of the whole, which contains every module."""
OUTSIDE = "in no module that is shown"


@dataclass(frozen=True)
class Cost:
    """Operations and bytes; costs add up."""

    matrix_flops: int = 0
    """FLOPs of matrix products, convolutions and attention; two for a multiplication with its addition."""
    weight_bytes: int = 0
    """Weights that are read, each once."""
    read_bytes: int = 0
    """Activations and cache that are read."""
    written_bytes: int = 0
    """Activations and cache that are written."""
    attention_flops: int = 0
    """Part of ``matrix_flops`` for queries with keys and weights with values, which a kernel may hide."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def scaled(self, times: int, parts: int = 1) -> Cost:
        """Return it multiplied by ``times`` and divided by ``parts``."""
        return Cost(*(getattr(self, one.name) * times // parts for one in fields(self)))

    @property
    def bytes(self) -> int:
        """All bytes."""
        return self.weight_bytes + self.read_bytes + self.written_bytes


def total(costs: Iterable[Cost]) -> Cost:
    """Add costs up."""
    return sum(costs, Cost())


@dataclass(frozen=True)
class StageCost:
    """Cost of one stage of a page."""

    stage: str
    """``projector``, ``vision_fusion``, ``prefill`` or ``decode``."""
    layers: Mapping[str, Cost] = field(default_factory=dict)
    """By the module's name in the vendor's state dict, such as ``model.layers.3.mlp``."""

    @property
    def cost(self) -> Cost:
        """The whole stage."""
        return total(self.layers.values())


def by_module(stages: Iterable[StageCost]) -> dict[str, Cost]:
    """Add several stages up, module by module: prefill and decode run the same."""
    found: dict[str, Cost] = {}
    for stage in stages:
        for name, cost in stage.layers.items():
            found[name] = found.get(name, Cost()) + cost
    return found


def product(rows: int, inputs: int, outputs: int) -> Cost:
    """Multiply ``[rows, inputs]`` by ``[inputs, outputs]``."""
    return Cost(matrix_flops=2 * rows * inputs * outputs)


def attention(queries: int, keys: int, channels: int) -> Cost:
    """Multiply ``queries`` with ``keys`` each, and the weights with the values, in heads of ``channels`` together."""
    flops = 4 * queries * keys * channels
    return Cost(matrix_flops=flops, attention_flops=flops)


def moved(size: int, *, weights: int = 0, read: int = 0, written: int = 0) -> Cost:
    """Return the cost of moving numbers of ``size`` bytes each."""
    return Cost(weight_bytes=size * weights, read_bytes=size * read, written_bytes=size * written)


def as_counted(stage: StageCost, chosen: str, device: str) -> int:
    """Return the FLOPs of a stage that torch's counter finds on ``cpu``, ``cuda`` or ``meta``.

    ``chosen`` is the run's attention, which a stage with one of its own does not use.
    """
    used = next((one.attention for one in STAGES if one.name == stage.stage and one.attention), chosen)
    hidden = (used, device.partition(":")[0]) in UNCOUNTED
    return stage.cost.matrix_flops - stage.cost.attention_flops * hidden


@dataclass(frozen=True)
class CostDifference:
    """A module whose own FLOPs, without those of counted modules inside it, are not as computed."""

    module: str
    expected: int
    operators: Mapping[str, int]
    """Counted FLOPs by operator."""
    calls: int
    parts: tuple[str, ...]
    """Modules that were expected to compute here and were not seen, if any."""

    @property
    def found(self) -> int:
        """Counted FLOPs in all."""
        return sum(self.operators.values())

    def __str__(self) -> str:
        called = f" in {count(self.calls, 'call')}" if self.calls else ""
        by = [f"{name.partition('::')[2]} {flops:,}" for name, flops in self.operators.items() if flops]
        said = [
            f"{self.module or OUTSIDE}{called}: {self.found:,}, expected {self.expected:,}{self._times()}",
            *([f"by {', '.join(by)}"] if by else []),
            *([f"not seen: {listed(self.parts, 3)}"] if self.parts else []),
        ]
        return "; ".join(said)

    def _times(self) -> str:
        return f", {self.found / self.expected:.4g} times as much" if self.expected and self.found else ""


def differences(
    expected: Mapping[str, Cost], modules: Mapping[str, Mapping[str, int]], calls: Mapping[str, int]
) -> list[CostDifference]:
    """Compare each module's own FLOPs, in the order of ``expected``.

    Args:
        expected: computed, by module.
        modules: counted in each module and all that it calls, by operator; :data:`WHOLE` is all.
        calls: how often each module ran.
    """
    of_module = _own(expected, modules)
    own = {name: Counter(modules[name]) for name in modules}
    for name in modules:
        if name != WHOLE:
            own[_nearest(name.rpartition(".")[0], modules)].subtract(modules[name])
    found = []
    for name, parts in of_module.items():
        flops = sum(expected[part].matrix_flops for part in parts)
        if flops != own[name].total():
            absent = tuple(part for part in parts if calls and part != name and expected[part].matrix_flops)
            found.append(CostDifference(name, flops, own[name], calls.get(name, 0), absent))
    return found


def with_those_around(names: Iterable[str]) -> set[str]:
    """Return the names of modules, and of all modules that contain them."""
    parts = [name.split(".") for name in names]
    return {".".join(part[:end]) for part in parts for end in range(1, len(part) + 1)}


def _own(expected: Mapping[str, Cost], modules: Mapping[str, object]) -> dict[str, list[str]]:
    """Return each counted module with what was computed for it and no counted module inside it."""
    found: dict[str, list[str]] = {}
    for name in expected:
        found.setdefault(_nearest(name, modules), []).append(name)
    return found | {name: [] for name in modules if name not in found}


def _nearest(name: str, modules: Mapping[str, object]) -> str:
    """Return the innermost counted module that is or contains ``name``."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name
