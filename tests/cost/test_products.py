"""The products that are timed one by one are those of a decode step."""

from __future__ import annotations

import pytest

from ci.products import ITEM_BYTES, products
from pytest_dsocr.contract.presets import PRESETS
from pytest_dsocr.cost.model import decode_step
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.architecture import Architecture


def test_they_compute_all_of_a_step_but_its_attention() -> None:
    arch = Architecture()
    work = Workload((640, 640), PRESETS["tiny"], text_tokens=10, generated_tokens=2)
    step = decode_step(arch, work, 700).cost
    found = products(arch.decoder)
    assert sum(2 * one.inner * one.outer * one.runs for one in found) == step.matrix_flops - step.attention_flops
    weights = sum(ITEM_BYTES * one.inner * one.outer * one.runs for one in found)
    assert weights == pytest.approx(step.weight_bytes, rel=1e-3), "the norms and the embedding are left out"
