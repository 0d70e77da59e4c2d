"""The assembled model: what it accepts, and the rotary frequencies that no checkpoint holds."""

from __future__ import annotations

import pytest
import torch

from pytest_dsocr.engine.attention import eager
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.places import SYNTHETIC

ARCH = SYNTHETIC["tiny"]
CPU = torch.device("cpu")


def empty(dtype: torch.dtype, *, round_rope: bool = True) -> DeepseekOCR:
    return DeepseekOCR.empty(ARCH, eager, CPU, dtype, round_rope=round_rope)


def test_rotary_frequencies_are_there_without_a_checkpoint() -> None:
    head_dim = ARCH.decoder.head_dim
    expected = torch.tensor([10000.0 ** (-2 * i / head_dim) for i in range(head_dim // 2)])
    torch.testing.assert_close(empty(torch.float32).model.inv_freq, expected)


@pytest.mark.parametrize(("round_rope", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_rotary_frequencies_are_rounded_as_the_cast_of_a_whole_model_does(round_rope: bool, dtype: torch.dtype) -> None:
    exact = empty(torch.float32).model.inv_freq
    assert torch.equal(empty(torch.bfloat16, round_rope=round_rope).model.inv_freq, exact.to(dtype))
