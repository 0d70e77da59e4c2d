"""Inputs compared: ids, mask, grid and pixels are exact or wrong."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_dsocr.compare.verdict import Comparison, Verdict, equal
from pytest_dsocr.observation import InputsDigest


def compare_inputs(mine: InputsDigest, theirs: InputsDigest) -> Iterator[Comparison]:
    """Yield a comparison for each of the five tensors, and one for their dtypes."""
    yield _ids(mine.prompt_ids, theirs.prompt_ids)
    yield equal("images_seq_mask", mine.images_seq_mask, theirs.images_seq_mask, "every position")
    yield equal("images_spatial_crop", mine.images_spatial_crop, theirs.images_spatial_crop, "columns and rows")
    yield equal("images_crop", mine.images_crop, theirs.images_crop, "every bit")
    yield equal("images_ori", mine.images_ori, theirs.images_ori, "every bit")
    yield equal("dtypes", mine.dtypes, theirs.dtypes, "of ids, mask and grid")


def _ids(mine: list[int], theirs: list[int]) -> Comparison:
    if mine == theirs:
        return Comparison("input_ids", Verdict.MATCH, f"all {len(theirs)}")
    at = next((k for k, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
    measured = f"{len(mine)} ids, the reference has {len(theirs)}; they part at {at}"
    details = (f"subject   {mine[at : at + 8]}", f"reference {theirs[at : at + 8]}")
    return Comparison("input_ids", Verdict.WRONG, measured, None, details)
