"""The assembled model: what it accepts, and the rotary frequencies that no checkpoint holds."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from pytest_dsocr.engine.attention import eager
from pytest_dsocr.engine.decoder import Rope
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.places import SYNTHETIC
from pytest_dsocr.engine.synthetic import fill

ARCH = SYNTHETIC["tiny"]
CPU = torch.device("cpu")


def empty(dtype: torch.dtype, *, round_rope: bool = True) -> DeepseekOCR:
    return DeepseekOCR.empty(ARCH, eager, CPU, dtype, round_rope=round_rope)


def test_strict_loading_takes_its_own_state_and_nothing_else() -> None:
    source, target = empty(torch.float32), empty(torch.float32)
    fill(source)
    state = source.state_dict()
    target.load_state_dict(state, strict=True)
    assert all(torch.equal(target.state_dict()[name], tensor) for name, tensor in state.items())
    with pytest.raises(RuntimeError, match=r"Missing key.*view_seperator"):
        target.load_state_dict({name: t for name, t in state.items() if "seperator" not in name}, strict=True)
    with pytest.raises(RuntimeError, match=r"Unexpected key.*inv_freq"):
        target.load_state_dict({**state, "model.inv_freq": source.model.inv_freq}, strict=True)


def test_rotary_frequencies_are_there_without_a_checkpoint() -> None:
    head_dim = ARCH.decoder.head_dim
    expected = torch.tensor([10000.0 ** (-2 * i / head_dim) for i in range(head_dim // 2)])
    torch.testing.assert_close(empty(torch.float32).model.inv_freq, expected)


@pytest.mark.parametrize(("round_rope", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_rotary_frequencies_are_rounded_as_the_cast_of_a_whole_model_does(round_rope: bool, dtype: torch.dtype) -> None:
    exact = empty(torch.float32).model.inv_freq
    assert torch.equal(empty(torch.bfloat16, round_rope=round_rope).model.inv_freq, exact.to(dtype))


def test_rotation_pairs_the_halves_of_the_channels() -> None:
    rope = Rope(torch.tensor([1.0, 0.5]), torch.tensor([[3]]), torch.float32)
    rotated = rope.rotate(torch.tensor([1.0, 0.0, 0.0, 2.0])[None, None, None])[0, 0, 0]
    slow, fast = torch.tensor(1.5), torch.tensor(3.0)
    expected = torch.stack([fast.cos(), -2 * slow.sin(), fast.sin(), 2 * slow.cos()])
    torch.testing.assert_close(rotated, expected)


def test_nothing_in_it_wants_a_gradient_or_drops_out() -> None:
    model = empty(torch.float32)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not model.training


def test_a_model_made_directly_has_its_rotary_frequencies() -> None:
    """It was made with what lay in memory for them."""
    assert torch.equal(DeepseekOCR(ARCH).model.inv_freq, empty(torch.float32, round_rope=False).model.inv_freq)


def test_a_model_is_made_without_torchs_compiler() -> None:
    """Which brings sympy, and takes as long as all else of loading a small checkpoint."""
    code = "import sys; from pytest_dsocr.engine.session import Session; Session.from_checkpoint('synthetic:tiny')"
    heavy = "print([name for name in ('sympy', 'torch._dynamo', 'torch._inductor') if name in sys.modules])"
    said = subprocess.run([sys.executable, "-c", f"{code}; {heavy}"], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
