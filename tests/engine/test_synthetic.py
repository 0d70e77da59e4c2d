"""Synthetic weights: the same everywhere, and lively enough to tell two implementations apart."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.attention import eager
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.places import DEFAULT_SEED, SYNTHETIC
from pytest_dsocr.engine.synthetic import fill, synthetic_fingerprint
from pytest_dsocr.foundation.errors import DsocrError
from tests.engine.written import write_synthetic

TINY_SHA256 = "123462bd469300898fdf06a3aa50331ab7947d3be0929bcff520f8bb8dfe3499"
"""The fingerprint of ``synthetic:tiny``."""


def empty(arch: Architecture, dtype: torch.dtype = torch.float32) -> DeepseekOCR:
    return DeepseekOCR.empty(arch, eager, torch.device("cpu"), dtype)


def filled(dtype: torch.dtype = torch.float32, **options: Any) -> dict[str, Tensor]:
    model = empty(SYNTHETIC["tiny"], dtype)
    fill(model, **options)
    return dict(model.state_dict())


TINY = filled()


def raw(tensor: Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("columns", [64, 2**20 + 5], ids=["short", "longer than a chunk"])
def test_values_are_the_documented_function_of_seed_and_name(columns: int) -> None:
    """Written a second time, in numpy: the raw words of Philox, cut in four, centred, scaled."""
    model = nn.Module()
    model.register_parameter("weight", nn.Parameter(torch.empty(2, columns)))
    fill(model, seed=7)
    key = hashlib.sha256(b"7/weight").digest()[:16]
    words = np.random.Philox(key=int.from_bytes(key, "little")).random_raw(columns)
    integers = words.view(np.int16)[: 2 * columns].astype(np.float32)
    scale = np.float32(np.sqrt(12 / columns) / 65536)
    expected = (integers + np.float32(0.5)) * scale
    assert np.array_equal(model.get_parameter("weight").detach().numpy().reshape(-1), expected)


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


def test_sizes() -> None:
    parameters = {name: sum(p.numel() for p in on_meta(arch).parameters()) for name, arch in SYNTHETIC.items()}
    assert parameters == {"tiny": 1_000_256, "small": 17_482_560, "full": 3_336_106_240}
    assert replace(SYNTHETIC["small"].decoder, vocab_size=512) == SYNTHETIC["tiny"].decoder


def on_meta(arch: Architecture) -> DeepseekOCR:
    with torch.device("meta"):
        return DeepseekOCR(arch)


def test_written_folder_is_the_same_checkpoint(tmp_path: Path) -> None:
    write_synthetic("tiny", tmp_path, torch.float32)
    named, written = resolve("synthetic:tiny"), resolve(tmp_path)
    assert written.architecture == named.architecture
    assert written.tokenizer.special == named.tokenizer.special
    loaded = empty(written.architecture)
    written.load_into(loaded)
    assert all(torch.equal(loaded.state_dict()[name], tensor) for name, tensor in TINY.items())
    assert json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["torch_dtype"] == "float32"
