"""What the meters read: milliseconds, and operations counted exactly."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pytest_dsocr.reference.vendor_code.meters import Clock, CudaEvents, Flops, clock_of
from tests.compare.made import random


def counted(run: Any) -> float:
    meter = Flops()
    with torch.no_grad(), meter.running():
        start = meter.read()
        run()
        return meter.difference(start, meter.read())


@pytest.mark.parametrize(("m", "k", "n"), [(3, 5, 7), (1, 64, 512), (128, 1, 2)])
def test_a_product_of_matrices_is_two_operations_a_multiplication(m: int, k: int, n: int) -> None:
    assert counted(lambda: random(m, k) @ random(k, n)) == 2 * m * k * n


@pytest.mark.parametrize(("b", "heads", "tokens", "channels"), [(1, 1, 4, 8), (2, 4, 101, 16), (1, 12, 257, 64)])
def test_attention_on_the_processor_is_counted(b: int, heads: int, tokens: int, channels: int) -> None:
    x = random(b, heads, tokens, channels)
    assert counted(lambda: F.scaled_dot_product_attention(x, x, x)) == 4 * b * heads * tokens**2 * channels


def test_operations_are_those_between_two_readings_of_one_run() -> None:
    meter = Flops()
    a, b = random(2, 3), random(3, 4)
    with meter.running():
        a @ b
        start = meter.read()
        a @ b
        a @ b
        end = meter.read()
        a @ b
    assert (start, meter.difference(start, end)) == (48, 96)


def test_the_clock_gives_milliseconds() -> None:
    clock = Clock()
    assert clock.difference(1_000_000, 3_500_000) == 2.5
    with clock.running():
        start = clock.read()
        time.sleep(0.02)
        took_ms = clock.difference(start, clock.read())
    assert 20 <= took_ms < 2000


@pytest.mark.parametrize(("device", "kind"), [("cpu", Clock), ("cuda", CudaEvents), ("cuda:1", CudaEvents)])
def test_a_gpu_is_timed_on_its_stream_and_all_else_by_the_host(device: str, kind: type) -> None:
    assert type(clock_of(torch.device(device))) is kind


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_events_time_the_gpus_work_and_not_its_launch() -> None:
    meter = clock_of(torch.device("cuda"))
    x = random(4096, 4096).cuda()
    x @ x
    torch.cuda.synchronize()
    with meter.running():
        start, launched = meter.read(), time.perf_counter()
        for _ in range(20):
            x @ x
        end, launched_ms = meter.read(), (time.perf_counter() - launched) * 1e3
    assert meter.difference(start, end) > launched_ms
