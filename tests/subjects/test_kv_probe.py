"""Findings of the cache probe in known caches, and in broken ones."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_dsocr.subjects.kv_probe import CachePlace, KvProbe

LAYERS, HEADS, CHANNELS, POSITIONS = 3, 2, 4, 6


def made(dtype: torch.dtype = torch.float32) -> Any:
    """Return a state; its cache shows ``pairs``, and counts wrongly."""
    numbers = torch.arange(LAYERS * 2 * HEADS * POSITIONS * CHANNELS).to(dtype)
    pairs = [[*pair.clone()] for pair in numbers.view(LAYERS, 2, 1, HEADS, POSITIONS, CHANNELS)]
    keys, values = (lambda layer: pairs[layer][0]), (lambda layer: pairs[layer][1])
    return SimpleNamespace(cache=SimpleNamespace(pairs=pairs, keys=keys, values=values, layers=LAYERS, length=999))


@pytest.mark.parametrize(("dtype", "itemsize"), [(torch.float32, 4), (torch.bfloat16, 2)], ids=["float32", "bfloat16"])
def test_lengths_and_bytes_are_those_of_the_tensors_and_a_changed_bit_is_reported_by_its_place(
    dtype: torch.dtype, itemsize: int
) -> None:
    state = made(dtype)
    probe, pairs = KvProbe(state), state.cache.pairs
    assert (probe.lengths, probe.itemsize) == (((POSITIONS, POSITIONS),) * LAYERS, itemsize)
    assert probe.bytes_per_token == 2 * LAYERS * HEADS * CHANNELS * itemsize
    pairs[0][0][0, 0, 0, 0] = float("nan")  # equal bits are unchanged, though they are no numbers
    for layer, kind, position, head in ((0, 0, 0, 0), (0, 1, POSITIONS - 1, 1), (LAYERS - 1, 0, 3, 1), (1, 1, 0, 0)):
        before = probe.digest()
        pairs[layer][kind].view(torch.uint8)[0, head, position, -1] ^= 1
        [place] = before.changed(probe.digest())
        assert place == (layer, ("keys", "values")[kind], position)
        assert str(place) == f"layer {layer}'s {place.kind} at position {position}"
    pairs[1][1] = pairs[1][1][:, :, :-1]
    assert probe.lengths == ((6, 6), (6, 5), (6, 6))


def test_positions_added_at_the_end_and_those_behind_the_first_ones_change_nothing() -> None:
    state = made()
    before, first, pairs = KvProbe(state).digest(), KvProbe(state).digest(4), state.cache.pairs
    pairs[:] = [[torch.cat([part, part], dim=2) for part in pair] for pair in pairs]
    later = KvProbe(state).digest()
    assert before.changed(later) == ()
    assert len(later.changed(before)) == 2 * LAYERS * POSITIONS, "what is gone has changed"
    pairs[2][0][:, :, 4:] = 0
    assert first.changed(KvProbe(state).digest()) == ()
    pairs[2][0][:, :, 3:] = 0
    assert first.changed(KvProbe(state).digest()) == (CachePlace(2, "keys", 3),)
