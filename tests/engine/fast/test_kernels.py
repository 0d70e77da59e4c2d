"""Triton's kernels against the plain operations: on a GPU as they are, elsewhere by Triton's interpreter."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

from pytest_dsocr.engine.fast import plain
from pytest_dsocr.engine.fast.step import Operations
from tests.engine.fast.layers import DENSE, SMALL, Made, make

pytestmark = pytest.mark.skipif(
    not find_spec("triton"), reason="needs the triton package: on Linux, pip install triton; a GPU is not needed"
)

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
ODD: dict[str, Any] = {"hidden_size": 40, "num_key_value_heads": 2, "moe_intermediate_size": 20, "n_shared_experts": 1}
ODD |= {"n_routed_experts": 9, "num_experts_per_tok": 3, "norm_topk_prob": True, "routed_scaling_factor": 1.5}
MAKERS: Mapping[str, Callable[..., Made]] = {
    "as the vendor's, small": make,
    "fewer key heads, odd sizes": partial(make, replace(SMALL, **ODD)),
    "a ring": partial(make, ring=16),
    "one perceptron": partial(make, replace(SMALL, num_key_value_heads=1), DENSE, 256),
}
LIMITS = {torch.float32: 1e-6, torch.bfloat16: 0.015 if ON_GPU else 0.03}
"""Relative; bf16 rounds by up to 0.4 % of a value, each operation several times; Triton's interpreter cuts it off."""


@pytest.fixture(scope="module")
def fused() -> Iterator[Operations]:
    with pytest.MonkeyPatch.context() as patch:
        from pytest_dsocr.engine.fast import fused

        for kernel, tile in fused.TILES.items():  # an interpreter takes its time for each program
            patch.setitem(fused.TILES, kernel, tile._replace(rows=16))
        yield Operations.of(fused)


@pytest.fixture(scope="module", params=LIMITS, ids=lambda dtype: str(dtype).removeprefix("torch."))
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    found: torch.dtype = request.param
    return found


@pytest.fixture(params=MAKERS)
def made(request: pytest.FixtureRequest, dtype: torch.dtype) -> Made:
    return MAKERS[request.param](dtype=dtype, device=DEVICE)


def near(found: Tensor, expected: Tensor, dtype: torch.dtype) -> None:
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    error = (found.float() - expected.float()).norm() / expected.float().norm()
    assert error < LIMITS[dtype]


def test_queries_and_what_is_written_into_the_cache(fused: Operations, made: Made, dtype: torch.dtype) -> None:
    before = made.slot.keys.clone()
    expected = plain.qkv(made.x, made.layer, made.slot.at(0))
    keys, values = made.slot.keys.clone(), made.slot.values.clone()
    made.slot.keys.copy_(before)
    near(fused.qkv(made.x, made.layer, made.slot.at(0)), expected, dtype)
    near(made.slot.values, values, dtype)
    written = (made.slot.keys != before).any(dim=-1)[0, :, 0].nonzero().tolist()
    at = int(made.slot.targets)
    assert written == [[0, at]]
    near(made.slot.keys[0, 0, :, at], keys[0, 0, :, at], dtype)


@pytest.mark.parametrize("round_scores", [True, False])
def test_attention(fused: Operations, made: Made, dtype: torch.dtype, round_scores: bool) -> None:
    place = made.slot.at(0)
    q = plain.qkv(made.x, made.layer, place)
    found = fused.attend(q, place, round_scores=round_scores)
    near(found, plain.attend(q, place, round_scores=round_scores), dtype)
    for stored in (made.slot.keys, made.slot.values):
        stored[:, :, :, int(made.slot.lasts) + 1 :] = torch.nan
    assert torch.equal(fused.attend(q, place, round_scores=round_scores), found), "nothing is read of what comes later"


def test_a_product_is_added_to_the_residual(fused: Operations, made: Made, dtype: torch.dtype) -> None:
    mixed = plain.attend(plain.qkv(made.x, made.layer, made.slot.at(0)), made.slot.at(0), round_scores=False)
    found = fused.project(mixed, made.layer.output, made.x)
    near(found, plain.project(mixed, made.layer.output, made.x), dtype)


@pytest.mark.parametrize("rounded", [True, False])
def test_scores(fused: Operations, made: Made, dtype: torch.dtype, rounded: bool) -> None:
    asked = (made.x, made.layer.before_feed, made.head)
    found = fused.score(*asked, rounded=rounded)
    near(found, plain.score(*asked, rounded=rounded), dtype)
    assert torch.equal(found, found.to(dtype).float()) is (rounded or dtype == torch.float32)


def test_experts(fused: Operations, made: Made, dtype: torch.dtype) -> None:
    feed, norm = made.layer.feed, made.layer.before_feed
    scores = None if feed.router is None else plain.score(made.x, norm, feed.router, rounded=False)
    expected, chosen, weights = plain.gate_up(made.x, norm, scores, feed)
    inner, own_chosen, own_weights = fused.gate_up(made.x, norm, scores, feed)
    assert torch.equal(own_chosen, chosen)
    torch.testing.assert_close(own_weights, weights)
    near(inner, expected, dtype)
    found = fused.down(expected, chosen, weights, feed, made.x)
    near(found, plain.down(expected, chosen, weights, feed, made.x), dtype)


def test_equal_scores_and_scores_that_are_no_numbers(fused: Operations) -> None:
    """The first of equal scores is chosen; NaN chooses a valid expert."""
    made = make(replace(SMALL, num_experts_per_tok=3), device=DEVICE)
    scores = torch.tensor([[1.0, 5.0, 2.0, 5.0, 2.0, 0.0, 2.0, 1.0]], device=DEVICE)
    asked = (made.layer.before_feed, scores, made.layer.feed)
    assert fused.gate_up(made.x, *asked)[1].tolist() == [[1, 3, 2]]
    scores[0, 4] = torch.nan
    _, chosen, weights = fused.gate_up(made.x, *asked)
    assert 0 <= int(chosen.min()) <= int(chosen.max()) < 8
    assert weights.isnan().any(), "and so is what they are multiplied with"
