"""The count of FLOPs: by module, by operator, and what nobody has a formula for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.perf.probe.flops import Flops, counted_flops

ROWS, WIDE, NARROW = 6, 5, 4
FIRST, SECOND = 2 * ROWS * WIDE * NARROW, 2 * ROWS * NARROW * WIDE
ON_CPU = "aten::_scaled_dot_product_flash_attention_for_cpu"


@pytest.fixture(autouse=True)
def _without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def test_each_module_has_what_ran_in_it() -> None:
    net = nn.Sequential(nn.Linear(WIDE, NARROW), nn.Sequential(nn.Linear(NARROW, WIDE)), nn.Linear(WIDE, WIDE))
    names = ("", "0", "1", "1.0", "2")
    with counted_flops({name: net.get_submodule(name) for name in names}) as found:
        net[1](net[0](torch.ones(ROWS, WIDE)))
        net[0](torch.ones(ROWS, WIDE))
    assert found.modules == {
        "0": {"aten::addmm": 2 * FIRST},
        "1": {"aten::addmm": SECOND},
        "1.0": {"aten::addmm": SECOND},
    }
    assert found.calls == {"0": 2, "1": 1, "1.0": 1}
    assert found.algorithmic == found.as_counted == 2 * FIRST + SECOND


def test_nothing_stays_on_the_modules() -> None:
    net = nn.Linear(WIDE, NARROW)
    with counted_flops({"net": net}) as found:
        net(torch.ones(ROWS, WIDE))
    net(torch.ones(ROWS, WIDE))
    assert found.calls == {"net": 1}
    assert not net._forward_hooks and not net._forward_pre_hooks  # noqa: PT018


@pytest.mark.parametrize("keys", [ROWS, 3 * ROWS])
def test_fused_attention_counts_as_its_products_and_is_told_apart(keys: int) -> None:
    q, k, v = torch.ones(1, 2, ROWS, 8), torch.ones(1, 2, keys, 8), torch.ones(1, 2, keys, 8)
    with counted_flops() as fused:
        F.scaled_dot_product_attention(q, k, v)
    with counted_flops() as written_out:
        (q @ k.transpose(2, 3)).softmax(-1) @ v
    assert fused.operators == {ON_CPU: written_out.algorithmic}
    assert (fused.as_counted, fused.uncounted[ON_CPU]) == (0, 1)
    assert not fused.unknown


@torch.library.custom_op("dsocr_planted::product", mutates_args=())
def hidden_product(a: Tensor, b: Tensor) -> Tensor:
    """A product that torch's counter cannot know."""
    return torch.from_numpy(a.numpy() @ b.numpy())


def test_an_operator_without_a_formula_is_named() -> None:
    with counted_flops() as found:
        for _ in range(3):
            hidden_product(torch.ones(2, 2), torch.ones(2, 2))
    assert found.algorithmic == 0
    assert found.unknown == {"dsocr_planted::product": 3}


def test_so_is_one_of_torchs_own_that_multiplies() -> None:
    with counted_flops() as found:
        torch.dot(torch.ones(4), torch.ones(4))
        torch.ones(4).mul(2).exp().sum()
        F.interpolate(torch.ones(1, 1, 4), size=8, mode="linear")
    assert found.unknown == {"aten::dot": 1}
    assert found.uncounted["aten::exp"] == 1


def test_what_is_not_known_is_not_compared() -> None:
    from suites.cost.compared import compared

    with counted_flops() as found:
        hidden_product(torch.ones(2, 2), torch.ones(2, 2))
    for one, said in (
        (found, "no formula is known for dsocr_planted::product (1 run)"),
        (Flops(), "none was counted"),
    ):
        made = compared("prefill/FLOPs", [], one)
        assert not made.passes
        assert made.measured.startswith(said)
