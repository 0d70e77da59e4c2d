"""Compare inputs: ids, mask, grid and pixels must be equal. Some differences show their cause, which becomes a sign."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from torch import Tensor

from pytest_dsocr.compare.seams import anatomy
from pytest_dsocr.compare.signs import IN_WORDS, Sign
from pytest_dsocr.compare.verdict import Comparison, Verdict, equal
from pytest_dsocr.observation.observation import InputsDigest, Runs, Seam
from pytest_dsocr.observation.summing import bytes_sha256

SHOWN_IDS = 8
LEVEL = 2 / 255
"""Of pixels from -1 to 1."""
GREY = 127 / 255 * 2 - 1

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
    measured = f"{len(own)} ids, the reference has {len(others)}; they differ from position {at} on"
    signs = tuple(_id_signs(own, others, at >= len(others) - _after_last_true(theirs.images_seq_mask)))
    shown = (f"subject   {own[at : at + SHOWN_IDS]}", f"reference {others[at : at + SHOWN_IDS]}")
    return _wrong("input_ids", measured, signs, shown)


def _id_signs(own: list[int], others: list[int], behind_image: bool) -> Iterator[Sign]:
    if own == others[1:]:
        yield Sign.NO_BOS
    elif own == others[:1] + others:
        yield Sign.TWO_BOS
    elif sorted(own) == sorted(others):
        yield Sign.IDS_REORDERED
    elif behind_image:
        yield Sign.BEHIND_IMAGE


def _after_last_true(mask: Runs) -> int:
    """Count the positions after the last image token; all of them where there is none."""
    last = mask[-1:]
    return sum(length for value, length in last if not value)


def _mask(mine: Runs, theirs: Runs) -> Comparison:
    if mine == theirs:
        return Comparison("images_seq_mask", Verdict.MATCH, "every position")
    counts = [sum(length for value, length in mask if value) for mask in (mine, theirs)]
    measured = f"{counts[0]} image tokens in {len(mine)} runs; the reference has {counts[1]} in {len(theirs)}"
    return _wrong(
        "images_seq_mask", measured, _mask_signs(mine, theirs, counts[0] == counts[1] - 1, counts[0] != counts[1])
    )


def _mask_signs(mine: Runs, theirs: Runs, one_fewer: bool, other_count: bool) -> Iterator[Sign]:
    if one_fewer:
        yield Sign.ONE_TOKEN_FEWER
    elif other_count:
        yield Sign.OTHER_COUNT
    if _first_true(mine) == _first_true(theirs) - 1:
        yield Sign.MASK_TOO_EARLY


def _first_true(mask: Runs) -> int:
    """Count the positions before the first image token."""
    return sum(length for value, length in mask[:1] if not value)


def _grid(mine: Grid, theirs: Grid) -> Comparison:
    found = equal("images_spatial_crop", mine, theirs, "columns and rows")
    if found.verdict is Verdict.MATCH:
        return found
    return _wrong(found.what, found.measured, _grid_signs(mine, theirs))


def _grid_signs(mine: Grid, theirs: Grid) -> Iterator[Sign]:
    most = [max((prod(one) for one in grid), default=0) for grid in (mine, theirs)]
    if mine == tuple(one[::-1] for one in theirs):
        yield Sign.GRID_EXCHANGED
    elif most[0] <= 1 < most[1]:
        yield Sign.NO_CROPS
    elif most[1] <= 1 < most[0]:
        yield Sign.CROPS
    elif most[0] <= 6 < most[1] and not _is_of_one_shape(mine, theirs):
        yield Sign.UP_TO_SIX


def _is_of_one_shape(mine: Grid, theirs: Grid) -> bool:
    """Say whether two grids are equally near to any page, so that the rule for ties may have made the difference."""
    pairs = list(zip(mine, theirs, strict=False))
    return all(a[0] * b[1] == a[1] * b[0] for a, b in pairs)


def _pixels(name: str, mine: InputsDigest, theirs: InputsDigest) -> Comparison:
    digests: tuple[str, str] = getattr(mine, name), getattr(theirs, name)
    if digests[0] == digests[1]:
        return Comparison(name, Verdict.MATCH, "every bit")
    looks = [digest.partition(" sha256 ")[0] for digest in digests]
    if looks[0] != looks[1]:
        return _wrong(name, f"{looks[0]}; the reference has {looks[1]}", (Sign.OTHER_SHAPE,))
    measured = f"other values in {looks[1]}"
    if mine.values is None or theirs.values is None:
        return _wrong(name, measured)
    own, others = mine.values[name], theirs.values[name]
    return _wrong(name, measured, _pixel_signs(own, others), anatomy(Seam.of(own), Seam.of(others)))


def _pixel_signs(mine_NCHW: Tensor, theirs_NCHW: Tensor) -> Iterator[Sign]:
    if sorted(map(bytes_sha256, mine_NCHW)) == sorted(map(bytes_sha256, theirs_NCHW)):
        yield Sign.VIEWS_REORDERED
    elif mine_NCHW.flip(1).equal(theirs_NCHW):
        yield Sign.CHANNELS_REORDERED
    elif _is_whole(mine_NCHW) and not _is_whole(theirs_NCHW):
        yield Sign.WHOLE_LEVELS
    else:
        yield from _view_signs(mine_NCHW, theirs_NCHW)


def _view_signs(mine_NCHW: Tensor, theirs_NCHW: Tensor) -> Iterator[Sign]:
    """Tell the bars beside a page from the page: these differ alone, or are of another width."""
    if len(theirs_NCHW) == 1 and (inside := inside_bars(theirs_NCHW[0])):
        rows, columns = inside
        if mine_NCHW[:, :, rows, columns].equal(theirs_NCHW[:, :, rows, columns]):
            yield Sign.BARS_ALONE
            return
        if inside_bars(mine_NCHW[0]) != inside:
            yield Sign.OTHER_BARS
            return
    if float((mine_NCHW.float() - theirs_NCHW.float()).abs().max()) <= LEVEL:
        yield Sign.ROUNDED


def inside_bars(view_CHW: Tensor) -> tuple[slice, slice] | None:
    """Give the rows and columns between bars of one level along a side's ends; None where there are none."""
    grey = (view_CHW - GREY).abs().amax(0) < LEVEL / 4
    whole = [(~grey.all(dim)).nonzero().flatten().tolist() for dim in (1, 0)]
    if not all(whole):
        return None
    rows, columns = (slice(places[0], places[-1] + 1) for places in whole)
    is_whole = (rows.stop - rows.start, columns.stop - columns.start) == tuple(grey.shape)
    return None if is_whole else (rows, columns)


def _wrong(what: str, measured: str, signs: Iterable[Sign] = (), details: Iterable[str] = ()) -> Comparison:
    found = tuple(signs)
    told = (*(IN_WORDS[sign] for sign in found if sign in IN_WORDS), *details)
    return Comparison(what, Verdict.WRONG, measured, None, told, frozenset(found))


def _is_whole(views: Tensor) -> bool:
    return {-1.0, 0.0, 1.0}.issuperset(views.unique().tolist())
