"""Inputs are equal or wrong, one verdict for each of the five tensors and one for the dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from pytest_dsocr.compare.inputs import compare_inputs
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.observation import InputsDigest
from suites.meta.compare.made import input_tensors

NAMES = ["input_ids", "images_seq_mask", "images_spatial_crop", "images_crop", "images_ori", "dtypes"]


def compared(**changes: Tensor) -> list[Comparison]:
    mine = InputsDigest.of({**input_tensors(), **changes})
    return list(compare_inputs(mine, InputsDigest.of(input_tensors())))


def test_equal_inputs_match_in_six_respects() -> None:
    found = compared()
    assert [comparison.what for comparison in found] == NAMES
    assert {comparison.verdict for comparison in found} == {Verdict.MATCH}
    assert found[0].measured == "all 8"


def flip(at: int) -> Callable[[Tensor], Tensor]:
    def flipped(mask: Tensor) -> Tensor:
        mask[0, at] = ~mask[0, at]
        return mask

    return flipped


CHANGES: Mapping[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "an id": ("input_ids", lambda ids: ids + torch.tensor([0, 0, 0, 0, 0, 0, 0, 1])),
    "a mask's first position": ("images_seq_mask", flip(0)),
    "a mask's last position": ("images_seq_mask", flip(7)),
    "rows for columns": ("images_spatial_crop", lambda grid: grid.flip(1)),
    "crops exchanged": ("images_crop", lambda views: views.flip(0)),
    "a level": ("images_ori", lambda views: views + 0.01),
    "the page in float32": ("images_ori", lambda views: views.float()),
}


@pytest.mark.parametrize(("name", "change"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_wrong_in_its_tensor_alone(name: str, change: Callable[[Tensor], Tensor]) -> None:
    found = compared(**{name: change(input_tensors()[name])})
    assert [comparison.what for comparison in found if comparison.verdict is Verdict.WRONG] == [name]
    assert [comparison.what for comparison in found if comparison.verdict is Verdict.MATCH] == [
        other for other in NAMES if other != name
    ]


@pytest.mark.parametrize("name", ["input_ids", "images_seq_mask", "images_spatial_crop"])
def test_equal_rows_in_another_dtype_are_wrong_in_their_dtypes_alone(name: str) -> None:
    *rows, dtypes = compared(**{name: input_tensors()[name].to(torch.int32)})
    assert {row.verdict for row in rows} == {Verdict.MATCH}
    assert dtypes.verdict is Verdict.WRONG
    assert "int32" in dtypes.measured


IDS = [0, 500, 500, 500, 21, 22, 22, 500]


@pytest.mark.parametrize(
    ("mine", "at", "subject", "reference"),
    [
        ([9, *IDS[1:]], 0, [9, *IDS[1:]], IDS),
        ([*IDS[:7], 501], 7, [501], [500]),
        (IDS[:7], 7, [], [500]),
        ([*IDS, 4, 5], 8, [4, 5], []),
        (IDS[:1] + IDS[2:], 3, [21, 22, 22, 500], [500, 21, 22, 22, 500]),
    ],
    ids=["first", "last", "shorter", "longer", "one left out"],
)
def test_ids_that_part_are_shown_from_there(mine: list[int], at: int, subject: list[int], reference: list[int]) -> None:
    [found] = [one for one in compared(input_ids=torch.tensor([mine])) if one.what == "input_ids"]
    assert found == Comparison(
        "input_ids",
        Verdict.WRONG,
        f"{len(mine)} ids, the reference has 8; they part at {at}",
        None,
        (f"subject   {subject}", f"reference {reference}"),
    )


def test_no_more_than_eight_ids_are_shown() -> None:
    [found] = [one for one in compared(input_ids=torch.arange(1, 31)[None]) if one.what == "input_ids"]
    assert found.details == (f"subject   {[*range(1, 9)]}", f"reference {IDS}")
