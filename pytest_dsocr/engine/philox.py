"""Philox's raw words on any device, equal to numpy's; see Salmon et al., "Parallel random numbers: as easy as 1, 2, 3".

PyTorch has 64-bit integers with a sign only. Sums and products wrap like those without one, and a shift to the right
is masked.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

WORDS_PER_BLOCK = 4
ROUNDS = 10
FACTORS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
KEY_STEPS = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
HALF, LOW = 32, 0xFFFFFFFF


def random_words(keys: Sequence[int], first: Sequence[int], blocks: Sequence[int], device: torch.device) -> Tensor:
    """Return some blocks of words for each key, from its ``first`` on: int64 ``[sum(blocks), 4]``."""
    counts = torch.tensor(blocks, device=device)
    halves = torch.tensor([[_signed(key), _signed(key >> 64)] for key in keys], device=device)
    key_0, key_1 = halves.repeat_interleave(counts, 0).unbind(1)
    before = (counts.cumsum(0) - counts - torch.tensor(first, device=device)).repeat_interleave(counts)
    word_0 = torch.arange(1, sum(blocks) + 1, device=device) - before  # numpy's counter starts at 1
    word_1, word_2, word_3 = (torch.zeros_like(word_0) for _ in range(3))
    for _ in range(ROUNDS):
        (high_0, low_0), (high_1, low_1) = _product(word_0, FACTORS[0]), _product(word_2, FACTORS[1])
        word_0, word_1, word_2, word_3 = high_1 ^ word_1 ^ key_0, low_1, high_0 ^ word_3 ^ key_1, low_0
        key_0, key_1 = key_0 + _signed(KEY_STEPS[0]), key_1 + _signed(KEY_STEPS[1])
    return torch.stack((word_0, word_1, word_2, word_3), 1)


def _product(word: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """Return the upper and the lower 64 bits of a product."""
    (high, low), (factor_high, factor_low) = (_high(word), word & LOW), (factor >> HALF, factor & LOW)
    across, other = low * factor_high, high * factor_low
    carried = (_high(low * factor_low) + (across & LOW) + (other & LOW)) >> HALF
    return high * factor_high + _high(across) + _high(other) + carried, word * _signed(factor)


def _high(word: Tensor) -> Tensor:
    return (word >> HALF) & LOW


def _signed(word: int) -> int:
    """Return the number that the lowest 64 bits are with a sign."""
    return ((word & (1 << 64) - 1) ^ (1 << 63)) - (1 << 63)
