"""What the cache probe tells of caches that are known, and of ones that go wrong."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from pytest_dsocr.subjects.kv_probe import KvProbe, Place

LAYERS, HEADS, CHANNELS, POSITIONS = 3, 2, 4, 6


@dataclass
class Shown:
    """A cache that shows what it is given, and counts wrongly."""

    pairs: list[tuple[Tensor, Tensor]]
    length: int = 999
    layers: int = LAYERS

    def keys(self, layer: int) -> Tensor:
        return self.pairs[layer][0]

    def values(self, layer: int) -> Tensor:
        return self.pairs[layer][1]


@dataclass
class State:
    cache: Shown
    logits: Tensor = field(default_factory=lambda: torch.zeros(5))


def made(positions: int = POSITIONS, dtype: torch.dtype = torch.float32) -> State:
    numbers = torch.arange(LAYERS * 2 * HEADS * positions * CHANNELS).to(dtype)
    blocks = numbers.view(LAYERS, 2, 1, HEADS, positions, CHANNELS)
    return State(Shown([(pair[0].clone(), pair[1].clone()) for pair in blocks]))


@pytest.mark.parametrize(("dtype", "itemsize"), [(torch.float32, 4), (torch.bfloat16, 2)], ids=["float32", "bfloat16"])
def test_lengths_and_bytes_are_those_of_the_tensors(dtype: torch.dtype, itemsize: int) -> None:
    probe = KvProbe(made(dtype=dtype))
    assert probe.lengths == ((POSITIONS, POSITIONS),) * LAYERS
    assert probe.itemsize == itemsize
    assert probe.bytes_per_token == 2 * LAYERS * HEADS * CHANNELS * itemsize
    assert probe.total_bytes == POSITIONS * probe.bytes_per_token


def test_a_layer_of_another_length_shows() -> None:
    state = made()
    state.cache.pairs[1] = (state.cache.pairs[1][0], state.cache.pairs[1][1][:, :, :-1])
    assert KvProbe(state).lengths == ((6, 6), (6, 5), (6, 6))


@pytest.mark.parametrize(
    ("layer", "kind", "position"),
    [(0, "keys", 0), (0, "values", POSITIONS - 1), (LAYERS - 1, "keys", 3), (LAYERS - 1, "values", 0)],
)
@pytest.mark.parametrize("head", range(HEADS))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_one_changed_bit_is_told_by_its_place(
    layer: int, kind: str, position: int, head: int, dtype: torch.dtype
) -> None:
    state = made(dtype=dtype)
    probe = KvProbe(state)
    before = probe.digest()
    tensor = state.cache.pairs[layer][kind == "values"]
    tensor.view(torch.uint8)[0, head, position, -1] ^= 1
    [place] = before.changed(probe.digest())
    assert place == (layer, kind, position)
    assert str(place) == f"layer {layer}'s {kind} at position {position}"


def test_equal_bits_are_unchanged_though_they_are_no_numbers() -> None:
    state = made()
    state.cache.pairs[0][0][0, 0, 0, 0] = float("nan")
    assert KvProbe(state).digest().changed(KvProbe(state).digest()) == ()


def test_positions_added_at_the_end_change_nothing() -> None:
    state = made()
    before = KvProbe(state).digest()
    state.cache.pairs = [(torch.cat([k, k], dim=2), torch.cat([v, k], dim=2)) for k, v in state.cache.pairs]
    later = KvProbe(state).digest()
    assert before.changed(later) == ()
    assert len(later.changed(before)) == 2 * LAYERS * POSITIONS, "what is gone has changed"


def test_a_digest_of_the_first_positions_leaves_out_the_rest() -> None:
    state = made()
    first = KvProbe(state).digest(4)
    state.cache.pairs[2][0][:, :, 4:] = 0
    assert first.changed(KvProbe(state).digest()) == ()
    state.cache.pairs[2][0][:, :, 3:] = 0
    assert first.changed(KvProbe(state).digest()) == (Place(2, "keys", 3),)


def test_it_is_imported_without_torch() -> None:
    code = "import sys, pytest_dsocr.subjects.kv_probe; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
