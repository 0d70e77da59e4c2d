"""What a tensor is summed up to, on the host and on a device; and that nothing waits for a GPU meanwhile."""

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from pytest_dsocr.observation import block_seams
from pytest_dsocr.observation.block_seams import BLOCKS, watch_deep
from pytest_dsocr.observation.observation import Seam
from pytest_dsocr.observation.summing import CHUNK_VALUES, device_sums, host_sums
from tests.compare.made import random
from tests.observation.test_block_seams import Toy
from tests.waiting import no_waiting

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
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
@pytest.mark.parametrize("tensor", [*TENSORS.values(), random(30, 20).T[3:, ::2]], ids=[*TENSORS, "a view"])
def test_a_seam_of_a_gpu_is_that_of_its_copy(tensor: Tensor) -> None:
    there, host = Seam.of(tensor.cuda(), keep_values=True), Seam.of(tensor, keep_values=True)
    assert (there.shape, there.dtype, there.sha256) == (host.shape, host.dtype, host.sha256)
    assert (there.mean, there.std, there.norm) == pytest.approx(
        (host.mean, host.std, host.norm), rel=1e-12, nan_ok=True
    )
    assert torch.equal(there.sample.nan_to_num(), host.sample.nan_to_num())
    assert torch.allclose(there.sketch, host.sketch, rtol=1e-6, atol=1e-9, equal_nan=True)
    assert there.values is not None
    assert host.values is not None
    assert torch.equal(there.values.nan_to_num(), host.values.nan_to_num())


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
