"""Inputs are equal or wrong, one verdict for each of the five tensors and one for the dtypes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pytest_dsocr.compare.inputs import compare_inputs
from pytest_dsocr.compare.signs import IN_WORDS, Sign
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.observation.observation import InputsDigest
from tests.compare.made import input_tensors

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


def told(signs: Sequence[Sign]) -> tuple[str, ...]:
    return tuple(IN_WORDS[sign] for sign in signs)


IDS = [0, 500, 500, 500, 21, 22, 22, 500]


@pytest.mark.parametrize(
    ("mine", "at", "subject", "reference", "signs"),
    [
        ([9, *IDS[1:]], 0, [9, *IDS[1:]], IDS, []),
        ([*IDS[:7], 501], 7, [501], [500], []),
        (IDS[:7], 7, [], [500], []),
        ([*IDS, 4, 5], 8, [4, 5], [], [Sign.BEHIND_IMAGE]),
        (IDS[:1] + IDS[2:], 3, [21, 22, 22, 500], [500, 21, 22, 22, 500], []),
        (IDS[1:], 0, IDS[1:], IDS, [Sign.NO_BOS]),
        ([0, *IDS], 1, IDS, [*IDS[1:]], [Sign.TWO_BOS]),
        ([0, 21, 22, 22, *[500] * 4], 1, [21, 22, 22, *[500] * 4], IDS[1:], [Sign.IDS_REORDERED]),
    ],
    ids=["first", "last", "shorter", "longer", "one left out", "no BOS", "two BOS", "image behind"],
)
def test_ids_that_part_are_shown_from_there(
    mine: list[int], at: int, subject: list[int], reference: list[int], signs: list[Sign]
) -> None:
    [found] = [one for one in compared(input_ids=torch.tensor([mine])) if one.what == "input_ids"]
    assert found == Comparison(
        "input_ids",
        Verdict.WRONG,
        f"{len(mine)} ids, the reference has 8; they differ from position {at} on",
        None,
        (*told(signs), f"subject   {subject}", f"reference {reference}"),
        frozenset(signs),
    )


@pytest.mark.parametrize(
    ("ids", "signs"),
    [
        ([0, 500, 500, 21, 23], [Sign.BEHIND_IMAGE]),
        ([0, 500, 500, 20, 22], [Sign.BEHIND_IMAGE]),
        ([0, 500, 500], [Sign.BEHIND_IMAGE]),
        ([0, 500, 501, 21, 22], []),
    ],
)
def test_a_text_that_differs_behind_the_image_is_told(ids: list[int], signs: list[Sign]) -> None:
    mask = torch.tensor([[False, True, True, False, False]])
    mine, theirs = (
        InputsDigest.of({**input_tensors(), "input_ids": torch.tensor([row]), "images_seq_mask": mask})
        for row in (ids, [0, 500, 500, 21, 22])
    )
    assert next(compare_inputs(mine, theirs)).signs == frozenset(signs)


@pytest.mark.parametrize(
    ("mask", "measured", "signs"),
    [
        ("1111...1", "5 image tokens in 3 runs; the reference has 4 in 4", [Sign.OTHER_COUNT, Sign.MASK_TOO_EARLY]),
        ("111...1.", "4 image tokens in 4 runs; the reference has 4 in 4", [Sign.MASK_TOO_EARLY]),
        (".11....1", "3 image tokens in 4 runs; the reference has 4 in 4", [Sign.ONE_TOKEN_FEWER]),
        (".1.....1", "2 image tokens in 4 runs; the reference has 4 in 4", [Sign.OTHER_COUNT]),
        (".1111..1", "5 image tokens in 4 runs; the reference has 4 in 4", [Sign.OTHER_COUNT]),
        ("........", "0 image tokens in 1 runs; the reference has 4 in 4", [Sign.OTHER_COUNT]),
    ],
)
def test_masks_are_told_by_their_counts(mask: str, measured: str, signs: list[Sign]) -> None:
    tensor = torch.tensor([[place == "1" for place in mask]])
    [found] = [one for one in compared(images_seq_mask=tensor) if one.what == "images_seq_mask"]
    assert found == Comparison("images_seq_mask", Verdict.WRONG, measured, None, told(signs), frozenset(signs))


@pytest.mark.parametrize(
    ("mine", "theirs", "signs"),
    [
        ([[2, 3]], [[3, 2]], [Sign.GRID_EXCHANGED]),
        ([[1, 1]], [[3, 2]], [Sign.NO_CROPS]),
        ([[0, 0]], [[3, 2]], [Sign.NO_CROPS]),
        ([[2, 1]], [[1, 1]], [Sign.CROPS]),
        ([[2, 3]], [[2, 4]], [Sign.UP_TO_SIX]),
        ([[2, 1]], [[4, 2]], []),
        ([[2, 4]], [[2, 3]], []),
        ([[2, 2]], [[2, 3]], []),
        ([[3, 3]], [[2, 4]], []),
    ],
)
def test_grids_give_some_causes_away(mine: list[list[int]], theirs: list[list[int]], signs: list[Sign]) -> None:
    sides = [InputsDigest.of({**input_tensors(), "images_spatial_crop": torch.tensor(grid)}) for grid in (mine, theirs)]
    [found] = [one for one in compare_inputs(*sides) if one.what == "images_spatial_crop"]
    assert (found.verdict, found.details) == (Verdict.WRONG, told(signs))
    assert found.signs == {*signs}


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        (lambda views: views.flip(0), Sign.VIEWS_REORDERED),
        (lambda views: views.flip(1), Sign.CHANNELS_REORDERED),
        (lambda views: views.clamp(-1, 1).round(), Sign.WHOLE_LEVELS),
        (lambda views: views + 0.004, Sign.ROUNDED),
        (lambda views: views + 0.5, None),
    ],
    ids=["views", "channels", "whole", "rounded", "brighter"],
)
def test_whole_pixels_tell_more_than_hashes(change: Callable[[Tensor], Tensor], sign: Sign | None) -> None:
    views = input_tensors()["images_crop"]
    sides = [
        InputsDigest.of({**input_tensors(), "images_crop": crops}, keep_values=True) for crops in (change(views), views)
    ]
    [found] = [one for one in compare_inputs(*sides) if one.what == "images_crop"]
    *signs, mean, _std, _norm = [line for line in found.details if not line.startswith("at ") and "sampled" not in line]
    assert found.measured == "other values in bfloat16 [2, 3, 4, 4]"
    assert signs == ([IN_WORDS[sign]] if sign else [])
    assert found.signs == ({sign} if sign else set())
    assert mean.startswith("mean ")
    [hashed] = [one for one in compare_inputs(replace(sides[0], values=None), sides[1]) if one.what == "images_crop"]
    assert hashed == Comparison("images_crop", Verdict.WRONG, found.measured)


def _with_bars(first: int, last: int, bar: float = 127 / 255 * 2 - 1) -> Tensor:
    """Rows ``first`` to ``last`` of eight hold a page, the others a bar."""
    view = torch.full((1, 3, 8, 8), bar)
    view[:, :, first:last] = input_tensors()["images_ori"][:, :, : last - first, :1].float()
    return view.bfloat16()


@pytest.mark.parametrize(
    ("mine", "sign"),
    [
        (_with_bars(2, 6, 0.0), Sign.BARS_ALONE),
        (_with_bars(2, 6, 1.0), Sign.BARS_ALONE),
        (_with_bars(3, 7), Sign.OTHER_BARS),
        (_with_bars(2, 5), Sign.OTHER_BARS),
        (_with_bars(0, 4), Sign.OTHER_BARS),
        (_with_bars(2, 6) * 0.5 - 0.002, None),
    ],
    ids=["zero", "white", "a row later", "a row fewer", "at the top", "another page"],
)
def test_bars_are_told_from_the_page(mine: Tensor, sign: Sign | None) -> None:
    theirs = _with_bars(2, 6)
    sides = [InputsDigest.of({**input_tensors(), "images_ori": view}, keep_values=True) for view in (mine, theirs)]
    [found] = [one for one in compare_inputs(*sides) if one.what == "images_ori"]
    assert found.signs == ({sign} if sign else set())


def test_levels_that_are_whole_on_both_sides_tell_nothing() -> None:
    views = torch.tensor([[[[-1.0, 0.0], [1.0, 1.0]]]])
    sides = [
        InputsDigest.of({**input_tensors(), "images_crop": crops}, keep_values=True) for crops in (views, views.abs())
    ]
    [found] = [one for one in compare_inputs(*sides) if one.what == "images_crop"]
    assert found.verdict is Verdict.WRONG
    assert not found.signs


def test_pixels_of_another_shape_or_dtype_are_told_by_them() -> None:
    views = input_tensors()["images_crop"]
    for crops, look in ((views[:1], "bfloat16 [1, 3, 4, 4]"), (views.float(), "float32 [2, 3, 4, 4]")):
        found = {one.what: one for one in compared(images_crop=crops)}["images_crop"]
        assert found.measured == f"{look}; the reference has bfloat16 [2, 3, 4, 4]"
        assert found.signs == {Sign.OTHER_SHAPE}


def test_no_more_than_eight_ids_are_shown() -> None:
    [found] = [one for one in compared(input_ids=torch.arange(1, 31)[None]) if one.what == "input_ids"]
    assert found.details == (f"subject   {[*range(1, 9)]}", f"reference {IDS}")
