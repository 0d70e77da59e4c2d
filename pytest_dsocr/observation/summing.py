"""A tensor summed up where it is: on a GPU nothing waits for it, and only its bytes and a few sums are fetched.

Its bytes go into pinned memory while the GPU computes on; they are hashed when the sums are asked for.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from pytest_dsocr.observation.sketch import sample_positions, sketched, sketched_on_device


class Sums(NamedTuple):
    """What a tensor's values come to, computed in float64."""

    mean: float
    std: float
    norm: float
    sample: Tensor
    """Float32, at :func:`~pytest_dsocr.observation.sketch.sample_positions`."""
    sketch: Tensor
    """Float32, ``[SKETCH_VALUES]``."""


@dataclass(frozen=True)
class Summing:
    """A tensor of a GPU on its way."""

    host: Tensor
    """Its copy, which is whole once ``arrived``; pinned."""
    sums: Tensor
    """Mean, deviation, norm, sample and sketch in one row, float64; pinned likewise."""
    arrived: torch.cuda.Event

    @classmethod
    def of(cls, tensor: Tensor) -> Summing:
        """Have a contiguous tensor copied and summed up; it may be written to as soon as this returns."""
        with torch.cuda.device(tensor.device):
            sums = torch.cat([*map(torch.atleast_1d, device_sums(tensor))])
            host, own = _pinned(tensor), _pinned(sums)
            arrived = torch.cuda.Event()
            arrived.record()
        return cls(host, own, arrived)

    def fetch(self) -> Sums:
        """Wait until it is there."""
        self.arrived.synchronize()
        mean, std, norm = self.sums[:3].tolist()
        samples = len(sample_positions(self.host.numel()))
        sample, sketch = self.sums[3:].float().split([samples, len(self.sums) - 3 - samples])
        return Sums(mean, std, norm, sample, sketch)


def host_sums(tensor: Tensor) -> Sums:
    """Sum up a tensor of the CPU."""
    flat = tensor.double().flatten().numpy()
    with np.errstate(invalid="ignore"):  # what holds an infinity has no deviation, which is no reason to warn
        mean, std, norm = float(flat.mean()), float(flat.std()), float(np.linalg.norm(flat))
    sample, sketch = flat[sample_positions(flat.size)], sketched(flat)
    return Sums(mean, std, norm, torch.from_numpy(sample).float(), torch.from_numpy(sketch).float())


def device_sums(tensor: Tensor) -> tuple[Tensor, ...]:
    """Give the fields of :class:`Sums` in float64, on the tensor's device."""
    flat = tensor.double().flatten()
    mean, std, norm = flat.mean(), flat.std(correction=0), torch.linalg.vector_norm(flat)
    return mean, std, norm, flat[_positions_on(flat.device, len(flat))], sketched_on_device(flat)


def bytes_sha256(tensor: Tensor) -> str:
    """Hash a CPU tensor's bytes."""
    flat = tensor.contiguous().reshape(-1)
    return hashlib.sha256(flat.view(torch.uint8).numpy().data).hexdigest()


@lru_cache(256)
def _positions_on(device: torch.device, count: int) -> Tensor:
    return torch.from_numpy(sample_positions(count)).to(device)


def _pinned(tensor: Tensor) -> Tensor:
    host = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    return host.copy_(tensor, non_blocking=True)
