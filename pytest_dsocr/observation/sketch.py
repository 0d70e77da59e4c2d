"""All values of a tensor in a few numbers: sketched, and sampled.

Where a value is added up, and under which sign, follows from its position alone, by a function that recordings rest on.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

SAMPLE_VALUES = 64
SKETCH_VALUES = 128
CODES = 2 * SKETCH_VALUES
"""A bucket and a sign: odd codes count as they are, even ones negated."""
CHUNK_VALUES = 1 << 16
"""So many values at a time stay in a core's own cache."""
LANES = 64
"""On a device: sums beside one another of each code, so that fewer threads wait for the same one."""

Values: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]


def sketched(flat: Values) -> Values:
    """Add up all values under signs that look random: ``[SKETCH_VALUES]``."""
    codes, sums = _codes(flat.size), np.zeros(CODES)
    with np.errstate(invalid="ignore"):  # infinities of both signs are no reason to warn
        for start in range(0, flat.size, CHUNK_VALUES):
            chunk = slice(start, start + CHUNK_VALUES)
            sums += np.bincount(codes[chunk], flat[chunk], CODES)
        return sums[1::2] - sums[::2]


def sketched_on_device(flat: Tensor) -> Tensor:
    """Do what :func:`sketched` does, where the float64 values are; equal but for the order of adding."""
    codes = _codes_on(flat.device, _bits(len(flat)))[: len(flat)]
    sums = flat.new_zeros(LANES * CODES).index_add_(0, codes.int(), flat).view(LANES, CODES).sum(0)
    return sums[1::2] - sums[::2]


def sample_positions(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Give where a flat tensor of ``count`` values is sampled: once in each of equal stretches, in step with no axis.

    A tensor of few values is sampled whole.
    """
    stretches = min(count, SAMPLE_VALUES)
    turns = np.arange(stretches) + _mixed(stretches) / 2.0**32
    return (turns * (count / stretches)).astype(np.int64)


def _codes(count: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Give the code of each of the first ``count`` positions."""
    return _first_codes(_bits(count))[:count]


def _bits(count: int) -> int:
    return max(count - 1, 1).bit_length()


@cache
def _first_codes(bits: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return (_mixed(1 << bits) % np.uint32(CODES)).astype(np.uint8)


@cache
def _codes_on(device: torch.device, bits: int) -> Tensor:
    lanes = np.arange(1 << bits) % LANES * CODES
    return torch.from_numpy((_first_codes(bits) + lanes).astype(np.int16)).to(device)


def _mixed(count: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Give numbers below 2**32 that look random, one for each index."""
    mixed = np.arange(count, dtype=np.uint32)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        mixed = (mixed ^ (mixed >> np.uint32(shift))) * np.uint32(factor)
    return mixed ^ (mixed >> np.uint32(16))
