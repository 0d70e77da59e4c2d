"""The key-value cache by itself: lengths, contents, growth, rows of different lengths."""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_dsocr.engine.cache import INITIAL_CAPACITY, KVCache

HEADS, CHANNELS = 2, 4


def block(tokens: int, rows: int = 1) -> Tensor:
    return torch.randn(rows, HEADS, tokens, CHANNELS)


def write(cache: KVCache, keys: Tensor, values: Tensor) -> None:
    positions = cache.positions(keys.shape[2], keys.device)
    for layer in range(cache.layers):
        cache.append(layer, keys + layer, values - layer, positions)
    cache.advance(keys.shape[2])


def test_holds_what_was_written_in_order() -> None:
    cache, keys, values = KVCache(layers=3), block(9), block(9)
    write(cache, keys[:, :, :5], values[:, :, :5])
    for at in range(5, 9):
        write(cache, keys[:, :, at : at + 1], values[:, :, at : at + 1])
    assert cache.length == 9
    for layer in range(3):
        assert torch.equal(cache.keys(layer), keys + layer)
        assert torch.equal(cache.values(layer), values - layer)


def test_buffers_are_kept_from_step_to_step_and_grow_by_doubling() -> None:
    cache = KVCache(layers=1)
    write(cache, block(INITIAL_CAPACITY), block(INITIAL_CAPACITY))
    addresses = set()
    for _ in range(INITIAL_CAPACITY):
        write(cache, block(1), block(1))
        addresses.add(cache.keys(0).data_ptr())
    assert len(addresses) == 1, "one growth at the first step, none in the steps after it"
    held = cache.keys(0).untyped_storage().nbytes() + cache.values(0).untyped_storage().nbytes()
    assert held == 2 * cache.bytes_per_token * INITIAL_CAPACITY


def test_growth_keeps_the_contents() -> None:
    cache, keys = KVCache(layers=1), block(3 * INITIAL_CAPACITY)
    for part in keys.split(INITIAL_CAPACITY - 1, dim=2):
        write(cache, part, part)
    assert torch.equal(cache.keys(0), keys)


def test_dropped_positions_are_written_again() -> None:
    cache, keys, other = KVCache(layers=1), block(5), block(1)
    write(cache, keys, keys)
    cache.drop_last()
    cache.drop_last()
    assert cache.length == 3
    write(cache, other, other)
    assert torch.equal(cache.keys(0), torch.cat([keys[:, :, :3], other], dim=2))


def test_joined_rows_of_different_lengths_grow_each_at_its_own_end() -> None:
    singles, written = [], []
    for length in (3, 6):
        cache, keys = KVCache(layers=2), block(length)
        write(cache, keys, keys)
        singles.append(cache)
        written.append(keys)
    batch = KVCache.join(singles)
    assert batch.lengths == [3, 6]
    assert batch.is_ragged
    assert batch.positions(1, torch.device("cpu")).tolist() == [[3], [6]]
    step = block(1, rows=2)
    write(batch, step, step)
    assert batch.lengths == [4, 7]
    for row, keys in enumerate(written):
        expected = torch.cat([keys[0], step[row]], dim=1)
        assert torch.equal(batch.keys(1)[row, :, : batch.lengths[row]], expected + 1)
    assert torch.equal(singles[0].keys(0), written[0]), "the single caches are untouched"
