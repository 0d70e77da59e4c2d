"""FLOPs as torch's own counter has them, by module and operator, and what that counter does not know."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, flop_registry

PRODUCTS = re.compile(r"attention|attn|mm|conv|einsum|dot|matmul|linear($|_)")
"""In the name of an operator that multiplies matrices."""


@dataclass(frozen=True)
class Flops:
    """FLOPs counted in one run."""

    operators: Counter[str] = field(default_factory=Counter)
    """FLOPs of each operator, with those that torch's counter lacks."""
    modules: dict[str, Counter[str]] = field(default_factory=dict)
    """FLOPs of each operator within each module, by the module's given name; modules that did not run are left out."""
    calls: Counter[str] = field(default_factory=Counter)
    """Number of calls of each module."""
    uncounted: Counter[str] = field(default_factory=Counter)
    """Number of calls of each operator that torch's counter does not know."""

    @property
    def algorithmic(self) -> int:
        """FLOPs of all products, those of fused attention among them."""
        return self.operators.total()

    @property
    def as_counted(self) -> int:
        """FLOPs that torch's counter finds alone."""
        return sum(flops for name, flops in self.operators.items() if name not in self.uncounted)

    @property
    def unknown(self) -> dict[str, int]:
        """Operators that may multiply matrices and have no figure here: nothing counts their FLOPs."""
        return {
            name: runs
            for name, runs in self.uncounted.items()
            if name not in self.operators and (not name.startswith(("aten::", "prim")) or PRODUCTS.search(name))
        }


@contextmanager
def counted_flops(modules: Mapping[str, nn.Module] = {}) -> Iterator[Flops]:
    """Count what runs within, on any device, and within each of ``modules``; meta tensors do."""
    found = Flops()
    counter = FlopCounterMode(display=False, custom_mapping=_completed())
    with ExitStack() as stack:
        stack.enter_context(_Uncounted(found.uncounted))  # outside, where decomposed operators arrive
        stack.enter_context(counter)
        for name, module in modules.items():
            _hook(name, module, counter, found, stack)
        yield found
        found.operators.update(_by_operator(counter))


class _Uncounted(TorchDispatchMode):
    def __init__(self, runs: Counter[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.runs = runs

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket not in flop_registry:
            self.runs[func.overloadpacket._qualified_op_name] += 1
        return func(*args, **(kwargs or {}))


def _hook(name: str, module: nn.Module, counter: FlopCounterMode, found: Flops, stack: ExitStack) -> None:
    running: list[Counter[str]] = []

    def enter(*_: Any) -> None:
        running.append(_by_operator(counter))

    def leave(*_: Any) -> None:
        within = _by_operator(counter) - running.pop()
        found.modules[name] = found.modules.get(name, Counter()) + within
        found.calls[name] += 1

    stack.callback(module.register_forward_pre_hook(enter).remove)
    stack.callback(module.register_forward_hook(leave).remove)


def _by_operator(counter: FlopCounterMode) -> Counter[str]:
    by_operator = counter.get_flop_counts().get("Global", {})
    return Counter({operator._qualified_op_name: flops for operator, flops in by_operator.items()})


def _completed() -> dict[Any, Any]:
    """Return formulas of attention kernels that torch has none for, of those that this process has."""
    known = {
        ("aten", "_scaled_dot_product_flash_attention_for_cpu"): _heads_first,
        ("flash_attn", "_flash_attn_forward"): _positions_first,
    }
    found = {getattr(getattr(torch.ops, space), name, None): formula for (space, name), formula in known.items()}
    return {operator: formula for operator, formula in found.items() if operator is not None}


def _heads_first(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """Count all pairs of ``[B, N, T, D]`` with ``[B, G, S, D]``."""
    return int(2 * prod(q[:-1]) * k[-2] * (q[-1] + v[-1]))


def _positions_first(q: Any, k: Any, v: Any, *_: Any, **__: Any) -> int:
    """Count all pairs of ``[B, T, N, D]`` with ``[B, S, G, D]``."""
    return int(2 * prod(q[:-1]) * k[1] * (q[-1] + v[-1]))
