"""The peaks of devices: all there, from named sources, and found by the names that drivers give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import suites
from pytest_dsocr.cost.roofline import DEVICES, Device, device_called, device_of_gpu, devices
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.perf.baseline import read

every_device = pytest.mark.parametrize("device", devices().values(), ids=[*devices()])
DTYPES = {"bfloat16", "float16", "float32"}


@every_device
def test_a_device_has_its_peaks_and_their_source(device: Device) -> None:
    assert {*device.tflops} == DTYPES
    assert device.tflops["bfloat16"] == device.tflops["float16"] > device.tflops["float32"] > 0
    assert device.bandwidth_gb_s > device.memory_gb > 0
    assert device.name.split()[0] in device.source
    assert device.gpus


def test_peaks_are_those_without_sparsity() -> None:
    """Written down a second time: with sparsity a figure doubles, and data sheets show that one first."""
    assert {name: (one.tflops["bfloat16"], one.bandwidth_gb_s) for name, one in devices().items()} == {
        "h200": (989, 4800),
        "h100-sxm": (989, 3350),
        "h100-pcie": (756, 2000),
        "a100-40": (312, 1555),
        "a100-80": (312, 2039),
        "a100-80-pcie": (312, 1935),
        "l40s": (362, 864),
        "l4": (121, 300),
        "rtx-4090": (165.2, 1008),
        "rtx-3090": (71, 936),
        "mi300x": (1307.4, 5300),
    }


def test_every_name_is_of_one_device() -> None:
    names = [gpu for device in devices().values() for gpu in device.gpus]
    assert len(names) == len({*names})
    assert [*devices()] == [*json.loads(DEVICES.read_text(encoding="utf-8"))]


def test_a_device_is_found_by_its_short_name_and_by_its_drivers() -> None:
    assert device_called("H200") is device_called("NVIDIA H200") is devices()["h200"]
    assert device_of_gpu("NVIDIA A100-SXM4-80GB") is devices()["a100-80"]
    assert device_of_gpu("NVIDIA H200 MIG 1g.18gb") is None, "part of a device has other peaks"


def test_an_unknown_device_is_refused_with_the_known_ones() -> None:
    with pytest.raises(DsocrError, match=r"a device 'h300' are not known; give one of h200, h100-sxm, .*, mi300x$"):
        device_called("h300")


def test_every_gpu_that_a_baseline_is_of_is_known() -> None:
    baselines = [*Path(suites.__file__).parents[1].glob("golden/baselines/*/*-gundam.json")]
    assert baselines
    assert all(device_of_gpu(read(path).measured.identity["machine"]["gpu"]) for path in baselines)
