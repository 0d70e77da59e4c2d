"""Operations in float16 that overflow, and those that only look like it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from pytest_dsocr.explain.overflow import LARGEST, Overflow, OverflowWatch, place_of

BIG = torch.tensor([300.0, -2.0]).half()
SCORES = torch.tensor([[-20.0, 3.0]]).half()
LEAST = torch.finfo(torch.float16).min
Operation = Callable[[], Tensor]


def overflow_in(operation: Operation) -> Overflow | None:
    with OverflowWatch(["model.sam_model.blocks.3.mlp"]) as watch:
        operation()
    return watch.found


@pytest.mark.parametrize(
    ("operation", "reaches"),
    [
        (lambda: BIG.pow(2), 9e4),
        (lambda: BIG.clone().mul_(BIG), 9e4),
        (lambda: torch.tensor([7e4, 1.0]).half(), 7e4),
        (lambda: BIG[None] @ BIG[:, None], 90004.0),
        (lambda: 1 / (1 + BIG * BIG), 9e4),
    ],
    ids=["square", "in place", "converted", "product", "with a finite result"],
)
def test_an_overflow_is_found_with_the_value_that_it_would_have(operation: Operation, reaches: float) -> None:
    found = overflow_in(operation)
    assert found is not None
    assert (found.stage, found.place) == ("sam", "SAM's block 3")
    assert found.reaches == pytest.approx(reaches, rel=1e-3)


@pytest.mark.parametrize(
    "operation",
    [
        lambda: SCORES + torch.full((1, 2), -torch.inf).half(),
        lambda: SCORES.masked_fill(SCORES < 0, -torch.inf),
        lambda: SCORES + torch.full((1, 2), LEAST, dtype=torch.float16),
        lambda: torch.full((2,), torch.finfo(torch.float32).min).half(),
        lambda: torch.full((2,), LARGEST).half(),
        lambda: BIG.float().pow(2),
        lambda: BIG.bfloat16().pow(2),
        lambda: torch.empty(1 << 16, dtype=torch.float16)[:10],
    ],
    ids=["infinite", "filled", "least number", "float32's least number", "largest", "float32", "bfloat16", "no values"],
)
def test_masks_other_dtypes_and_memory_without_values_are_no_overflow(operation: Operation) -> None:
    assert overflow_in(operation) is None


def test_the_first_of_several_is_kept_with_the_largest_value_before_it() -> None:
    with OverflowWatch([]) as watch:
        _ = BIG * 2
        _ = SCORES.masked_fill(SCORES < 0, LEAST)
        _ = BIG * BIG
        _ = BIG.pow(3)
    assert watch.found is not None
    assert watch.found.operation == "mul"
    assert [*watch.reaches.values()] == [600.0]


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("model.sam_model", ("sam", "SAM")),
        ("model.sam_model.blocks.3.mlp.lin1", ("sam", "SAM's block 3")),
        ("model.sam_model.neck.1", ("sam", "SAM's neck")),
        ("model.projector.layers", ("projector", "projector's layers")),
        ("model.layers.11.mlp", ("prefill", "the decoder's layer 11")),
        ("lm_head", ("prefill", "the decoder's lm_head")),
    ],
)
def test_a_place_is_named_by_the_vendors_path(path: str, place: tuple[str, str]) -> None:
    assert place_of(path) == place
