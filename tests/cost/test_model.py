"""The arithmetic of small models: their parameters, and what the vendor's code was counted to compute."""

from __future__ import annotations

from collections import Counter

import pytest

from pytest_dsocr.cost.model import activation_peaks, cache_bytes, parameters
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import SYNTHETIC
from pytest_dsocr.families import DEFAULT
from tests.conftest import model_of

PEAKS = [
    ("full", "eager", "gundam", (868220928, 15720448, 97365240, 41438208, 48660480)),
    ("full", "sdpa", "tiny", (64487424, 2529280, 14510080, 41438208, 10567680)),
    ("tiny", "eager", "gundam", (276824064, 982528, 27188784, 42112, 608256)),
    ("tiny", "sdpa", "gundam", (276824064, 982528, 2239488, 42112, 608256)),
]


@pytest.mark.parametrize("checkpoint", ["mini", "synthetic:tiny"])
def test_each_modules_parameters_are_those_of_the_model(checkpoint: str) -> None:
    found = Counter[str]()
    computed = parameters(resolve(checkpoint).architecture)
    for name, tensor in model_of(Engine.from_checkpoint(checkpoint)).state_dict().items():
        module = name
        while module not in computed:
            module = module.rpartition(".")[0]
        found[module] += tensor.numel()
    assert found == computed
    assert sum(parameters(Architecture()).values()) == 3_336_106_240, "as published"


@pytest.mark.parametrize(("size", "attention", "preset", "expected_bytes"), PEAKS)
def test_peaks_of_activations_are_as_when_they_were_held_to_torchs_allocator(
    size: str, attention: str, preset: str, expected_bytes: tuple[int, ...]
) -> None:
    """On a GPU ``test_gpu.py`` holds them to it again; the last is the cache."""
    arch, work = SYNTHETIC[size], Workload((1140, 1101), DEFAULT.presets[preset], 36, 64, attention=attention)
    found = activation_peaks(arch, work)
    assert (*found.values(), cache_bytes(arch, work)) == expected_bytes
