"""Summaries of tensors, rows, logits and files in an observation."""

import hashlib
import math
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from pytest_dsocr.records.reference_result import Artefact, Best, NotFinite, Seam
from pytest_dsocr.records.summing import CHUNK_VALUES, host_sums, sample_positions
from tests.compare.made import random

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
TENSORS = {
    "one value": torch.tensor([2.5]),
    "more than two chunks": random(2 * CHUNK_VALUES + 77),
    "no axis": torch.tensor(2.5),
    "bf16": random(3, 40, 5).bfloat16(),
    "f16": random(90).half(),
    "f64": random(7, 11).double(),
    "a view": random(30, 20).T[3:, ::2],
    "a gradient": random(8).requires_grad_(),
    "zeros": torch.zeros(70),
}


@each_device
@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS)
def test_a_seam_sums_up_its_tensor(tensor: Tensor, device: str) -> None:
    seam = Seam.of(tensor.to(device), keep_values=True)
    wide = tensor.detach().double().flatten()
    own = tensor.detach().contiguous()
    raw = own.view(torch.int16).numpy().tobytes() if own.dtype == torch.bfloat16 else own.numpy().tobytes()
    assert seam.sha256 == hashlib.sha256(raw).hexdigest()
    assert seam.shape == tuple(tensor.shape)
    assert seam.dtype == str(tensor.dtype)[len("torch.") :]
    assert seam.mean == pytest.approx(float(wide.mean()), rel=1e-12)
    assert seam.std == pytest.approx(float(wide.std(correction=0)), rel=1e-12, abs=1e-12)
    assert seam.norm == pytest.approx(float(wide.norm()), rel=1e-12)
    assert torch.equal(seam.sample, wide[sample_positions(len(wide))].float())
    assert (seam.sample.dtype, seam.sketch.dtype) == (torch.float32, torch.float32)
    assert seam.sketch.shape == (128,)
    assert torch.allclose(seam.sketch, host_sums(own).sketch, rtol=1e-6, atol=1e-9)
    assert seam.values is not None
    assert torch.equal(seam.values, tensor)
    assert seam.values.is_contiguous(), "files of tensors hold no views"
    assert not seam.values.requires_grad
    assert Seam.of(tensor).values is None


def test_the_hash_sees_a_zeros_sign_and_a_nans_payload() -> None:
    assert Seam.of(torch.tensor([0.0])).sha256 != Seam.of(torch.tensor([-0.0])).sha256
    nans = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert Seam.of(nans[:1]).sha256 != Seam.of(nans[1:]).sha256


@each_device
def test_nans_and_infinities_are_counted_apart(device: str) -> None:
    tensor = random(3, 40)
    tensor[1, 7], tensor[1, 9], tensor[2, 0] = math.inf, math.nan, -math.inf
    found = Seam.of(tensor.to(device)).not_finite
    assert found == NotFinite(nans=1, infinities=2, values=120, first=(1, 7))
    assert str(found) == "1 NaN and 2 infinite of 120 values, the first at [1, 7]"
    assert Seam.of(random(3)).not_finite is None
    for bad in (math.nan, math.inf, -math.inf):
        seam = Seam.of(torch.tensor([1.0, bad], device=device))
        assert math.isnan(seam.std)
        assert not math.isfinite(seam.norm)


def test_best_are_in_order_with_their_logits_in_float32() -> None:
    logits = torch.tensor([0.5, 3.0, -1.0, 2.0]).bfloat16()
    assert Best.of(logits) == Best((1, 3, 0, 2), (3.0, 2.0, 0.5, -1.0))
    assert Best.of(logits, 2) == Best((1, 3), (3.0, 2.0))
    assert len(Best.of(random(100)).ids) == 5


def test_an_artefact_is_a_files_bytes_and_a_pictures_pixels(tmp_path: Path) -> None:
    Image.new("RGB", (30, 20)).save(tmp_path / "0.jpg")
    (tmp_path / "result.mmd").write_bytes(b"# \xc3\xa9")
    assert Artefact.of(tmp_path / "0.jpg") == Artefact((tmp_path / "0.jpg").stat().st_size, (30, 20))
    assert Artefact.of(tmp_path / "result.mmd") == Artefact(4)
