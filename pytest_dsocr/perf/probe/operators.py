"""What torch is asked to do, counted operator by operator: the same in every round, and without noise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

WAITS = frozenset(("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique_consecutive", "_unique2"))
"""Operators whose result, or its size, the host has to wait for."""
COPIES = frozenset(("_to_copy", "copy_"))
CONVOLUTION = "convolution"


@dataclass
class Operators:
    """What was counted in one stretch."""

    count: int = 0
    synchronisations: int = 0
    """Operators that the host waits for: a number or a shape read from a tensor, a copy from a GPU to the host."""
    new_bytes: int = 0
    """Bytes of results that are stored anew, and not in what was given."""
    convolutions: int = 0
    """A decoder has none, an encoder of images begins with one."""


class Counting(TorchDispatchMode):
    """Counts the operators called within, on any device; what a CUDA graph or another library runs is not seen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = Operators()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = args, kwargs or {}
        out = func(*args, **given[1])
        name = func.overloadpacket.__name__
        self.seen.count += 1
        self.seen.synchronisations += name in WAITS or (name in COPIES and _leaves_gpu(name, args, out))
        self.seen.convolutions += name == CONVOLUTION
        self.seen.new_bytes += _new_bytes(given, out)
        return out


def _leaves_gpu(name: str, args: Any, out: Any) -> bool:
    source = args[1] if name == "copy_" else args[0]
    return bool(source.device.type != "cpu" and out.device.type == "cpu")


def _new_bytes(given: Any, out: Any) -> int:
    old = {one.untyped_storage()._cdata for one in _tensors(given)}
    new = {storage._cdata: storage.nbytes() for one in _tensors(out) if (storage := one.untyped_storage())}
    return sum(size for data, size in new.items() if data not in old)


def _tensors(values: Any) -> Iterator[Tensor]:
    return (one for one in tree_iter(values) if isinstance(one, torch.Tensor) and one.layout == torch.strided)
