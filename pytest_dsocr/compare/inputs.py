"""Inputs compared: ids, mask, grid and pixels are exact or wrong, and some ways to be wrong give their cause away."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from torch import Tensor

from pytest_dsocr.compare.seams import anatomy
from pytest_dsocr.compare.verdict import Comparison, Verdict, equal
from pytest_dsocr.observation.observation import InputsDigest, Runs, Seam, bytes_sha256

SHOWN_IDS = 8

NO_BOS = "the BOS in front is missing"
TWO_BOS = "there is one BOS too many in front"
REORDERED = "the same ids in another order"
BEHIND_IMAGE = "they part behind the image"
TOO_EARLY = "one place too early"
ONE_TOKEN_FEWER = "one image token fewer"
EXCHANGED = "columns and rows exchanged"
NO_CROPS = "no crops where the reference has some"
CROPS = "crops where the reference has none"
UP_TO_SIX = "no more than 6 crops where the reference has up to 9"
VIEWS_REORDERED = "the same views in another order"
CHANNELS_REORDERED = "the channels in the opposite order"
WHOLE_LEVELS = "no values but -1, 0 and 1"

Grid = tuple[tuple[int, int], ...]


def compare_inputs(mine: InputsDigest, theirs: InputsDigest) -> Iterator[Comparison]:
    """Yield a comparison for each of the five tensors, and one for their dtypes."""
    yield _ids(mine, theirs)
    yield _mask(mine.images_seq_mask, theirs.images_seq_mask)
    yield _grid(mine.images_spatial_crop, theirs.images_spatial_crop)
    yield _pixels("images_crop", mine, theirs)
    yield _pixels("images_ori", mine, theirs)
    yield equal("dtypes", mine.dtypes, theirs.dtypes, "of ids, mask and grid")


def _ids(mine: InputsDigest, theirs: InputsDigest) -> Comparison:
    own, others = mine.prompt_ids, theirs.prompt_ids
    if own == others:
        return Comparison("input_ids", Verdict.MATCH, f"all {len(others)}")
    at = next((k for k, (a, b) in enumerate(zip(own, others, strict=False)) if a != b), min(len(own), len(others)))
    measured = f"{len(own)} ids, the reference has {len(others)}; they part at {at}"
    shown = (f"subject   {own[at : at + SHOWN_IDS]}", f"reference {others[at : at + SHOWN_IDS]}")
    image_end = len(others) - _after_last_true(theirs.images_seq_mask)
    return Comparison("input_ids", Verdict.WRONG, measured, None, (*shown, *_id_signs(own, others, at >= image_end)))


def _id_signs(own: list[int], others: list[int], behind_image: bool) -> Iterator[str]:
    if own == others[1:]:
        yield NO_BOS
    elif own == others[:1] + others:
        yield TWO_BOS
    elif sorted(own) == sorted(others):
        yield REORDERED
    elif behind_image:
        yield BEHIND_IMAGE


def _after_last_true(mask: Runs) -> int:
    """Count the positions behind the last image token; all of them where there is none."""
    last = mask[-1:]
    return sum(length for value, length in last if not value)


def _mask(mine: Runs, theirs: Runs) -> Comparison:
    if mine == theirs:
        return Comparison("images_seq_mask", Verdict.MATCH, "every position")
    counts = [sum(length for value, length in mask if value) for mask in (mine, theirs)]
    measured = f"{counts[0]} image tokens in {len(mine)} runs; the reference has {counts[1]} in {len(theirs)}"
    signs = [ONE_TOKEN_FEWER] if counts[0] == counts[1] - 1 else []
    if _first_true(mine) == _first_true(theirs) - 1:
        signs.append(TOO_EARLY)
    return Comparison("images_seq_mask", Verdict.WRONG, measured, None, tuple(signs))


def _first_true(mask: Runs) -> int:
    """Count the positions in front of the first image token."""
    return sum(length for value, length in mask[:1] if not value)


def _grid(mine: Grid, theirs: Grid) -> Comparison:
    found = equal("images_spatial_crop", mine, theirs, "columns and rows")
    if found.verdict is Verdict.MATCH:
        return found
    return Comparison(found.what, found.verdict, found.measured, None, tuple(_grid_signs(mine, theirs)))


def _grid_signs(mine: Grid, theirs: Grid) -> Iterator[str]:
    most = [max((prod(one) for one in grid), default=0) for grid in (mine, theirs)]
    if mine == tuple(one[::-1] for one in theirs):
        yield EXCHANGED
    elif most[0] <= 1 < most[1]:
        yield NO_CROPS
    elif most[1] <= 1 < most[0]:
        yield CROPS
    elif most[0] <= 6 < most[1]:
        yield UP_TO_SIX


def _pixels(name: str, mine: InputsDigest, theirs: InputsDigest) -> Comparison:
    digests: tuple[str, str] = getattr(mine, name), getattr(theirs, name)
    if digests[0] == digests[1]:
        return Comparison(name, Verdict.MATCH, "every bit")
    looks = [digest.partition(" sha256 ")[0] for digest in digests]
    if looks[0] != looks[1]:
        return Comparison(name, Verdict.WRONG, f"{looks[0]}; the reference has {looks[1]}")
    measured = f"other values in {looks[1]}"
    if mine.values is None or theirs.values is None:
        return Comparison(name, Verdict.WRONG, measured)
    return Comparison(
        name, Verdict.WRONG, measured, None, tuple(_pixel_details(mine.values[name], theirs.values[name]))
    )


def _pixel_details(mine_NCHW: Tensor, theirs_NCHW: Tensor) -> Iterator[str]:
    if sorted(map(bytes_sha256, mine_NCHW)) == sorted(map(bytes_sha256, theirs_NCHW)):
        yield VIEWS_REORDERED
    elif mine_NCHW.flip(1).equal(theirs_NCHW):
        yield CHANNELS_REORDERED
    elif _is_whole(mine_NCHW) and not _is_whole(theirs_NCHW):
        yield WHOLE_LEVELS
    yield from anatomy(Seam.of(mine_NCHW), Seam.of(theirs_NCHW))


def _is_whole(views: Tensor) -> bool:
    return {-1.0, 0.0, 1.0}.issuperset(views.unique().tolist())
