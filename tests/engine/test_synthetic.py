"""Synthetic weights: the same everywhere, and lively enough to tell two implementations apart."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from pytest_dsocr.engine.places import DEFAULT_SEED, SYNTHETIC
from pytest_dsocr.engine.synthetic import fill, synthetic_fingerprint
from pytest_dsocr.foundation.errors import DsocrError

TINY_SHA256 = "123462bd469300898fdf06a3aa50331ab7947d3be0929bcff520f8bb8dfe3499"
"""The fingerprint of ``synthetic:tiny``."""


def test_the_fingerprint_is_the_recorded_one_and_tells_seeds_sizes_and_shapes_apart() -> None:
    assert synthetic_fingerprint(SYNTHETIC["tiny"], DEFAULT_SEED) == TINY_SHA256
    tiny = SYNTHETIC["tiny"]
    architectures = [tiny, SYNTHETIC["small"], replace(tiny, decoder=replace(tiny.decoder, n_routed_experts=16))]
    prints = [synthetic_fingerprint(arch, DEFAULT_SEED) for arch in architectures]
    prints += [synthetic_fingerprint(tiny, seed) for seed in (0, 1)]
    assert len(set(prints)) == 5


def test_a_tensor_of_no_known_kind_is_refused() -> None:
    model = nn.Module()
    model.register_parameter("temperature", nn.Parameter(torch.zeros(1)))
    with pytest.raises(DsocrError, match="named temperature"):
        fill(model)
