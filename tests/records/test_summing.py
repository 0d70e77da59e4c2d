"""Summaries of tensors on the host and on a device; differences that sketch and sample show."""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from pytest_dsocr.compare.seams import relative_error
from pytest_dsocr.records import block_seams
from pytest_dsocr.records.block_seams import BLOCKS, watch_deep
from pytest_dsocr.records.reference_result import Seam
from pytest_dsocr.records.summing import CHUNK_VALUES, SKETCH_VALUES, device_sums, host_sums, sample_positions
from tests.compare.made import random
from tests.records.test_block_seams import Toy
from tests.records.test_observation import on_gpu
from tests.waiting import no_waiting

LARGE = 2 * CHUNK_VALUES + 77
TENSORS = {
    "one value": torch.tensor([2.5]),
    "less than a chunk": random(3, 40, 5),
    "more than two chunks": random(LARGE),
    "bf16": random(9, 10, 1024).bfloat16(),
    "infinities": torch.tensor([1.0, math.inf, math.nan]),
}


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_a_device_comes_to_what_the_host_comes_to(tensor: Tensor) -> None:
    mean, std, norm, sample, sketch = device_sums(tensor)
    host = host_sums(tensor)
    assert [float(one) for one in (mean, std, norm)] == pytest.approx(
        [host.mean, host.std, host.norm], rel=1e-12, nan_ok=True
    )
    assert torch.equal(sample.float().nan_to_num(), host.sample.nan_to_num())
    assert torch.allclose(sketch.float(), host.sketch, rtol=1e-6, atol=1e-9, equal_nan=True)
    assert {one.dtype for one in (mean, std, norm, sample, sketch)} == {torch.float64}


@on_gpu
@pytest.mark.parametrize("most_bytes", [block_seams.MOST_WAITING_BYTES, 0], ids=["at the end", "as they come"])
def test_blocks_are_summed_up_as_they_were_and_without_waiting(
    most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_seams, "MOST_WAITING_BYTES", most_bytes)
    toy, values = Toy(), random(1, 500, 1280).cuda()
    expected = Seam.of(values).sha256
    with watch_deep(toy.module) as deep:
        with no_waiting() if most_bytes else nullcontext():
            toy.module(f"{BLOCKS['prefill']}.0")(values)
        values.zero_()
        assert deep.seams["prefill/0"].sha256 == expected


# What a sketch and a sample see of a tensor that they do not keep.

WIDE = random(6, 50, 32, seed=9)


def every_nth(step: int, first: int = 0) -> Tensor:
    positions = torch.arange(WIDE.numel()).view(WIDE.shape)
    return (positions % step == first).float()


CHANGES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "an offset": lambda x: x + 0.01,
    "a ramp": lambda x: x + torch.linspace(0, 1, x.numel()).view(x.shape),
    "a scale": lambda x: x * 1.001,
    "the sign": lambda x: -x,
    "every 128th value": lambda x: x + every_nth(SKETCH_VALUES),
    "alternating signs": lambda x: x + 1 - 2 * every_nth(2),
    "the mean alone kept": lambda x: x + every_nth(64) - every_nth(64, 33),
    "rolled by one": lambda x: x.roll(1, -1),
    "rows reversed": lambda x: x.flip(1),
    "one value": lambda x: x + every_nth(WIDE.numel(), 777),
    "axes exchanged": lambda x: x.transpose(1, 2).reshape(x.shape),
    "rounded": lambda x: x.bfloat16().float(),
}


def test_the_estimate_scatters_by_6_percent_around_the_true_error() -> None:
    ratios = []
    for seed in range(40):
        expected = random(3, 17, 64, seed=2 * seed)
        actual = expected + random(3, 17, 64, seed=2 * seed + 1) * 10.0 ** -(seed % 5)
        true = float((actual.double() - expected.double()).norm() / expected.double().norm())
        ratios.append(relative_error(Seam.of(actual), Seam.of(expected)) / true)
    assert 0.7 < min(ratios) <= max(ratios) < 1.3
    assert torch.tensor(ratios).mean() == pytest.approx(1, abs=0.03)
    assert torch.tensor(ratios).std() < 0.09


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_with_a_pattern_is_measured_as_well_as_noise(change: Callable[[Tensor], Tensor]) -> None:
    changed = change(WIDE)
    true_error = (changed.double() - WIDE.double()).norm() / WIDE.double().norm()
    assert relative_error(Seam.of(changed), Seam.of(WIDE)) == pytest.approx(float(true_error), rel=0.3)


def test_sample_positions_are_the_recorded_ones() -> None:
    for count in (1, 2, 64):
        assert sample_positions(count).tolist() == [*range(count)]
    recorded = [0, 22005, 44010, 51998, 75774, 83756, 103997, 118441]
    assert sample_positions(1_000_000).tolist()[: len(recorded)] == recorded
