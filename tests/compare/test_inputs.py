"""Inputs are equal or wrong: a verdict for each of the five tensors and one for the dtypes, and signs of the cause."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from pytest_dsocr.compare.inputs import GREY, compare_inputs
from pytest_dsocr.compare.verdict import Comparison, Symptom, Verdict
from pytest_dsocr.records.reference_result import InputsDigest
from tests.compare.made import input_tensors, shown

IDS = [0, 500, 500, 500, 21, 22, 22, 500]


Tensors = Mapping[str, Tensor]


def compared(changes: Tensors, expected: Tensors | None = None, *, keep_values: bool = False) -> list[Comparison]:
    before = {**input_tensors(), **(expected or {})}
    actual = InputsDigest.of({**before, **changes}, keep_values=keep_values)
    return list(compare_inputs(actual, InputsDigest.of(before, keep_values=keep_values)))


def only(found: list[Comparison], name: str) -> Comparison:
    """Return the comparison ``name``, the only one that is wrong."""
    assert [one.what for one in found if one.verdict is not Verdict.MATCH] == [name]
    return next(one for one in found if one.what == name)


def ids(*row: int) -> Tensor:
    return torch.tensor([row])


def mask(places: str) -> Tensor:
    return torch.tensor([[place == "1" for place in places]])


CHANGES: dict[str, tuple[str, Tensor]] = {
    "another first id": ("input_ids", ids(9, *IDS[1:])),
    "another last id": ("input_ids", ids(*IDS[:7], 501)),
    "an id fewer": ("input_ids", ids(*IDS[:7])),
    "more ids": ("input_ids", ids(*IDS, 4, 5)),
    "an id left out": ("input_ids", ids(*IDS[:1], *IDS[2:])),
    "no BOS": ("input_ids", ids(*IDS[1:])),
    "two BOS": ("input_ids", ids(0, *IDS)),
    "image behind": ("input_ids", ids(0, 21, 22, 22, *[500] * 4)),
    "all other ids": ("input_ids", torch.arange(1, 31)[None]),
    "mask too early": ("images_seq_mask", mask("111...1.")),
    "mask too early and too long": ("images_seq_mask", mask("1111...1")),
    "mask one fewer": ("images_seq_mask", mask(".11....1")),
    "mask two fewer": ("images_seq_mask", mask(".1.....1")),
    "mask one more": ("images_seq_mask", mask(".1111..1")),
    "no mask": ("images_seq_mask", mask("........")),
    "fewer crops": ("images_crop", input_tensors()["images_crop"][:1]),
    "crops in float32": ("images_crop", input_tensors()["images_crop"].float()),
}


def test_what_differs_is_wrong_in_its_tensor_alone_and_reported_by_its_sign(snapshot: SnapshotAssertion) -> None:
    assert {what: shown(only(compared({name: value}), name)) for what, (name, value) in CHANGES.items()} == snapshot


def test_equal_rows_in_another_dtype_are_wrong_in_their_dtypes_alone() -> None:
    assert "int32" in only(compared({"input_ids": input_tensors()["input_ids"].to(torch.int32)}), "dtypes").measured


def test_of_pixels_in_another_dtype_the_values_are_compared_as_well() -> None:
    same = input_tensors()["images_crop"].float()
    for pixels, words, signs in ((same, "the same", set()), (same + 1e-3, "other", {Symptom.ROUNDED})):
        found = only(compared({"images_crop": pixels}, keep_values=True), "images_crop")
        assert (found.measured.split()[0], found.measured.rpartition("; ")[2]) == ("float32", f"{words} values")
        assert found.signs == signs | {Symptom.OTHER_SHAPE}


@pytest.mark.parametrize(
    ("row", "sign"),
    [([23], Symptom.BEHIND_IMAGE), ([20, 22], Symptom.BEHIND_IMAGE), ([], Symptom.BEHIND_IMAGE), ([500, 21, 22], None)],
)
def test_a_text_that_differs_behind_the_image_is_reported(row: list[int], sign: Symptom | None) -> None:
    expected = {"input_ids": ids(0, 500, 500, 21, 22), "images_seq_mask": mask(".11..")}
    found = compared({"input_ids": ids(0, 500, 500, *row) if sign else ids(0, 500, 501, 21, 22)}, expected)[0]
    assert (found.verdict, {*found.signs}) == (Verdict.WRONG, {sign} - {None})


@pytest.mark.parametrize(
    ("actual", "expected", "sign"),
    [
        ([[2, 3]], [[3, 2]], Symptom.GRID_EXCHANGED),
        ([[1, 1]], [[3, 2]], Symptom.NO_CROPS),
        ([[0, 0]], [[3, 2]], Symptom.NO_CROPS),
        ([[2, 1]], [[1, 1]], Symptom.CROPS),
        ([[2, 3]], [[2, 4]], Symptom.UP_TO_SIX),
        ([[2, 1]], [[4, 2]], None),
        ([[2, 4]], [[2, 3]], None),
        ([[3, 3]], [[2, 4]], None),
    ],
)
def test_grids_give_some_causes_away(actual: list[list[int]], expected: list[list[int]], sign: Symptom | None) -> None:
    before = {"images_spatial_crop": torch.tensor(expected)}
    found = compared({"images_spatial_crop": torch.tensor(actual)}, before)
    assert {*only(found, "images_spatial_crop").signs} == {sign} - {None}


@pytest.mark.parametrize(
    ("change", "sign"),
    [
        (lambda views: views.flip(0), Symptom.VIEWS_REORDERED),
        (lambda views: views.flip(1), Symptom.CHANNELS_REORDERED),
        (lambda views: views.clamp(-1, 1).round(), Symptom.WHOLE_LEVELS),
        (lambda views: views + 0.004, Symptom.ROUNDED),
        (lambda views: views + 0.5, None),
    ],
    ids=["views", "channels", "whole", "rounded", "brighter"],
)
def test_whole_pixels_tell_more_than_hashes(change: Callable[[Tensor], Tensor], sign: Symptom | None) -> None:
    crops = change(input_tensors()["images_crop"])
    found = only(compared({"images_crop": crops}, keep_values=True), "images_crop")
    assert found.signs == {sign} - {None}
    assert any(line.startswith("mean ") for line in found.details)
    hashed = only(compared({"images_crop": crops}), "images_crop")
    assert hashed == replace(found, details=(), signs=frozenset())


def test_levels_that_are_whole_on_both_sides_tell_nothing() -> None:
    views = torch.tensor([[[[-1.0, 0.0], [1.0, 1.0]]]])
    found = compared({"images_crop": views.abs()}, {"images_crop": views}, keep_values=True)
    assert not only(found, "images_crop").signs


def _with_bars(first: int, last: int, bar: float = GREY) -> Tensor:
    """Rows ``first`` to ``last`` of eight hold a page, the others a bar."""
    view = torch.full((1, 3, 8, 8), bar)
    view[:, :, first:last] = input_tensors()["images_ori"][:, :, : last - first, :1].float()
    return view.bfloat16()


@pytest.mark.parametrize(
    ("actual", "sign"),
    [
        (_with_bars(2, 6, 0.0), Symptom.BARS_ALONE),
        (_with_bars(3, 7), Symptom.OTHER_BARS),
        (_with_bars(2, 5), Symptom.OTHER_BARS),
        (_with_bars(0, 4), Symptom.OTHER_BARS),
        (_with_bars(2, 6) * 0.5 - 0.002, None),
    ],
    ids=["zero", "a row later", "a row fewer", "at the top", "another page"],
)
def test_bars_are_distinguished_from_the_page(actual: Tensor, sign: Symptom | None) -> None:
    found = compared({"images_ori": actual}, {"images_ori": _with_bars(2, 6)}, keep_values=True)
    assert only(found, "images_ori").signs == {sign} - {None}
