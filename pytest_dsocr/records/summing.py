"""Summary of a tensor, computed on its own device: a sketch, a sample and a few sums.

The position of a value alone decides which bucket it is added to, and with which sign. Recordings depend on it.
On a GPU nothing waits: only the bytes and a few sums are fetched, and hashed when the sums are asked for.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

SAMPLE_VALUES = 64
SKETCH_VALUES = 128
CODES = 2 * SKETCH_VALUES
"""A bucket and a sign: odd codes count as they are, even ones negated."""
CHUNK_VALUES = 1 << 16
"""Values processed at a time; they fit into a core's own cache."""
MIXING = (16, 0x7FEB352D), (15, 0x846CA68B)
"""Shifts to the right and factors that turn an index into a number that looks random."""
LANES = 64
"""Separate sums of each code on a device, which reduce the number of threads that wait for the same one."""

FloatArray: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


def sketched(flat: FloatArray) -> FloatArray:
    """Add up all values under signs that look random: ``[SKETCH_VALUES]``."""
    codes, sums = _first_codes(_bits(flat.size))[: flat.size], np.zeros(CODES)
    with np.errstate(invalid="ignore"):  # infinities of both signs are no reason to warn
        for start in range(0, flat.size, CHUNK_VALUES):
            chunk = slice(start, start + CHUNK_VALUES)
            sums += np.bincount(codes[chunk], flat[chunk], CODES)
        return sums[1::2] - sums[::2]


def sketched_on_device(flat: Tensor) -> Tensor:
    """Compute :func:`sketched` on the device of the float64 values; equal except for the order of adding."""
    codes = _codes_on(flat.device, _bits(len(flat)))[: len(flat)]
    sums = flat.new_zeros(LANES * CODES).index_add_(0, codes.int(), flat).view(LANES, CODES).sum(0)
    return sums[1::2] - sums[::2]


def sample_positions(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the positions at which a flat tensor is sampled: one in each of equal stretches, aligned with no axis.

    A tensor of few values is sampled whole.
    """
    stretches = min(count, SAMPLE_VALUES)
    turns = np.arange(stretches) + _mixed(stretches) / 2.0**32
    return (turns * (count / stretches)).astype(np.int64)


def _bits(count: int) -> int:
    return max(count - 1, 1).bit_length()


@cache
def _first_codes(bits: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return (_mixed(1 << bits) % np.uint32(CODES)).astype(np.uint8)


@cache
def _codes_on(device: torch.device, bits: int) -> Tensor:
    """Compute :func:`_first_codes` on the device, which takes seconds on a CPU; each code in its lane."""
    index = torch.arange(1 << bits, device=device)
    mixed = index
    for shift, factor in MIXING:
        mixed = (mixed ^ (mixed >> shift)) * factor & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 16)) % CODES + index % LANES * CODES).short()


def _mixed(count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return numbers below 2**32 that look random, one for each index."""
    mixed = np.arange(count, dtype=np.uint32)
    for shift, factor in MIXING:
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
    return mixed ^ (mixed >> np.uint32(16))


class Sums(NamedTuple):
    """Statistics of a tensor's values, computed in float64."""

    mean: float
    std: float
    norm: float
    sample: Tensor
    """Float32, at :func:`~pytest_dsocr.records.summing.sample_positions`."""
    sketch: Tensor
    """Float32, ``[SKETCH_VALUES]``."""


@dataclass(frozen=True)
class Summing:
    """A tensor of a GPU on its way."""

    host: Tensor
    """Pinned copy of the tensor, complete once ``arrived``."""
    sums: Tensor
    """Mean, deviation, norm, sample and sketch in one row, float64; pinned likewise."""
    arrived: torch.cuda.Event

    @classmethod
    def of(cls, tensor: Tensor) -> Summing:
        """Start to copy and sum up a contiguous tensor, which may change as soon as this returns."""
        with torch.cuda.device(tensor.device):
            sums = torch.cat([*map(torch.atleast_1d, device_sums(tensor))])
            host, own = _pinned(tensor), _pinned(sums)
            arrived = torch.cuda.Event()
            arrived.record()
        return cls(host, own, arrived)

    def fetch(self) -> Sums:
        """Wait for the copy, and return its sums."""
        self.arrived.synchronize()
        mean, std, norm = self.sums[:3].tolist()
        samples = len(sample_positions(self.host.numel()))
        sample, sketch = self.sums[3:].float().split([samples, len(self.sums) - 3 - samples])
        return Sums(mean, std, norm, sample, sketch)


def host_sums(tensor: Tensor) -> Sums:
    """Sum up a tensor of the CPU."""
    flat = tensor.double().flatten().numpy()
    with np.errstate(invalid="ignore"):  # with an infinity there is no deviation, which needs no warning
        mean, std, norm = float(flat.mean()), float(flat.std()), float(np.linalg.norm(flat))
    sample, sketch = flat[sample_positions(flat.size)], sketched(flat)
    return Sums(mean, std, norm, torch.from_numpy(sample).float(), torch.from_numpy(sketch).float())


def device_sums(tensor: Tensor) -> tuple[Tensor, ...]:
    """Return the fields of :class:`Sums` in float64, on the tensor's device."""
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
