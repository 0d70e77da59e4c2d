"""Compare inputs: ids, mask, grid and pixels must be equal. Some differences show their cause, which becomes a sign."""

from collections.abc import Iterable, Iterator
from math import prod

from torch import Tensor

from pytest_dsocr.compare.seams import anatomy
from pytest_dsocr.compare.verdict import Comparison, Symptom, Verdict, equal
from pytest_dsocr.records.reference_result import InputsDigest, Runs, Seam
from pytest_dsocr.records.summing import bytes_sha256

SHOWN_IDS = 8
LEVEL = 2 / 255
"""Size of one level of pixels that range from -1 to 1."""
GREY = 127 / 255 * 2 - 1

CropGrids = tuple[tuple[int, int], ...]


def compare_inputs(actual: InputsDigest, expected: InputsDigest) -> Iterator[Comparison]:
    """Yield a comparison for each of the five tensors, and one for their dtypes."""
    yield _ids(actual, expected)
    yield _mask(actual.images_seq_mask, expected.images_seq_mask)
    yield _grid(actual.images_spatial_crop, expected.images_spatial_crop)
    yield _pixels("images_crop", actual, expected)
    yield _pixels("images_ori", actual, expected)
    yield equal("dtypes", actual.dtypes, expected.dtypes, "of ids, mask and grid")


def _ids(actual: InputsDigest, expected: InputsDigest) -> Comparison:
    own, others = actual.prompt_ids, expected.prompt_ids
    if own == others:
        return Comparison("input_ids", Verdict.MATCH, f"all {len(others)}")
    at = next((k for k, (a, b) in enumerate(zip(own, others, strict=False)) if a != b), min(len(own), len(others)))
    measured = f"{len(own)} ids, the reference has {len(others)}; they differ from position {at} on"
    signs = tuple(_id_signs(own, others, at >= len(others) - _after_last_true(expected.images_seq_mask)))
    shown = (f"subject   {own[at : at + SHOWN_IDS]}", f"reference {others[at : at + SHOWN_IDS]}")
    return _wrong("input_ids", measured, signs, shown)


def _id_signs(own: list[int], others: list[int], behind_image: bool) -> Iterator[Symptom]:
    if own == others[1:]:
        yield Symptom.NO_BOS
    elif own == others[:1] + others:
        yield Symptom.TWO_BOS
    elif sorted(own) == sorted(others):
        yield Symptom.IDS_REORDERED
    elif behind_image:
        yield Symptom.BEHIND_IMAGE


def _after_last_true(mask: Runs) -> int:
    """Count the positions after the last image token; all of them if there is none."""
    last = mask[-1:]
    return sum(length for value, length in last if not value)


def _mask(actual: Runs, expected: Runs) -> Comparison:
    if actual == expected:
        return Comparison("images_seq_mask", Verdict.MATCH, "every position")
    counts = [sum(length for value, length in mask if value) for mask in (actual, expected)]
    measured = f"{counts[0]} image tokens in {len(actual)} runs; the reference has {counts[1]} in {len(expected)}"
    return _wrong(
        "images_seq_mask", measured, _mask_signs(actual, expected, counts[0] == counts[1] - 1, counts[0] != counts[1])
    )


def _mask_signs(actual: Runs, expected: Runs, one_fewer: bool, other_count: bool) -> Iterator[Symptom]:
    if one_fewer:
        yield Symptom.ONE_TOKEN_FEWER
    elif other_count:
        yield Symptom.OTHER_COUNT
    if _first_true(actual) == _first_true(expected) - 1:
        yield Symptom.MASK_TOO_EARLY


def _first_true(mask: Runs) -> int:
    """Count the positions before the first image token."""
    return sum(length for value, length in mask[:1] if not value)


def _grid(actual: CropGrids, expected: CropGrids) -> Comparison:
    found = equal("images_spatial_crop", actual, expected, "columns and rows")
    if found.verdict is Verdict.MATCH:
        return found
    return _wrong(found.what, found.measured, _grid_signs(actual, expected))


def _grid_signs(actual: CropGrids, expected: CropGrids) -> Iterator[Symptom]:
    most = [max((prod(one) for one in grid), default=0) for grid in (actual, expected)]
    if actual == tuple(one[::-1] for one in expected):
        yield Symptom.GRID_EXCHANGED
    elif most[0] <= 1 < most[1]:
        yield Symptom.NO_CROPS
    elif most[1] <= 1 < most[0]:
        yield Symptom.CROPS
    elif most[0] <= 6 < most[1] and not _is_of_one_shape(actual, expected):
        yield Symptom.UP_TO_SIX


def _is_of_one_shape(actual: CropGrids, expected: CropGrids) -> bool:
    """Return whether two grids are equally near to any page, so that the rule for ties may be the cause."""
    pairs = list(zip(actual, expected, strict=False))
    return all(a[0] * b[1] == a[1] * b[0] for a, b in pairs)


def _pixels(name: str, actual: InputsDigest, expected: InputsDigest) -> Comparison:
    digests: tuple[str, str] = getattr(actual, name), getattr(expected, name)
    if digests[0] == digests[1]:
        return Comparison(name, Verdict.MATCH, "every bit")
    looks = [digest.partition(" sha256 ")[0] for digest in digests]
    is_alike, is_of_one_shape = looks[0] == looks[1], len({look.partition(" ")[2] for look in looks}) == 1
    measured = f"other values in {looks[1]}" if is_alike else f"{looks[0]}; the reference has {looks[1]}"
    signs = (Symptom.OTHER_SHAPE,) * (not is_alike)
    if not is_of_one_shape or actual.values is None or expected.values is None:
        return _wrong(name, measured, signs)
    own, others = actual.values[name].float(), expected.values[name].float()
    if not is_alike:
        measured += f"; {'the same' if own.equal(others) else 'other'} values"
    if own.equal(others):
        return _wrong(name, measured, signs)
    return _wrong(name, measured, (*signs, *_pixel_signs(own, others)), anatomy(Seam.of(own), Seam.of(others)))


def _pixel_signs(actual_NCHW: Tensor, expected_NCHW: Tensor) -> Iterator[Symptom]:
    if sorted(map(bytes_sha256, actual_NCHW)) == sorted(map(bytes_sha256, expected_NCHW)):
        yield Symptom.VIEWS_REORDERED
    elif actual_NCHW.flip(1).equal(expected_NCHW):
        yield Symptom.CHANNELS_REORDERED
    elif _is_whole(actual_NCHW) and not _is_whole(expected_NCHW):
        yield Symptom.WHOLE_LEVELS
    else:
        yield from _view_signs(actual_NCHW, expected_NCHW)


def _view_signs(actual_NCHW: Tensor, expected_NCHW: Tensor) -> Iterator[Symptom]:
    """Distinguish the bars around a page from the page: the bars alone differ, or have another width."""
    if len(expected_NCHW) == 1 and (inside := inside_bars(expected_NCHW[0])):
        rows, columns = inside
        if actual_NCHW[:, :, rows, columns].equal(expected_NCHW[:, :, rows, columns]):
            yield Symptom.BARS_ALONE
            return
        if inside_bars(actual_NCHW[0]) != inside:
            yield Symptom.OTHER_BARS
            return
    if float((actual_NCHW.float() - expected_NCHW.float()).abs().max()) <= LEVEL:
        yield Symptom.ROUNDED


def inside_bars(view_CHW: Tensor) -> tuple[slice, slice] | None:
    """Return the rows and columns between bars of one level along a side's ends; None if there are no bars."""
    grey = (view_CHW - GREY).abs().amax(0) < LEVEL / 4
    whole = [(~grey.all(dim)).nonzero().flatten().tolist() for dim in (1, 0)]
    if not all(whole):
        return None
    rows, columns = (slice(places[0], places[-1] + 1) for places in whole)
    is_whole = (rows.stop - rows.start, columns.stop - columns.start) == tuple(grey.shape)
    return None if is_whole else (rows, columns)


def _wrong(what: str, measured: str, signs: Iterable[Symptom] = (), details: Iterable[str] = ()) -> Comparison:
    found = tuple(signs)
    lines = (*(sign.sentence for sign in found if sign.sentence), *details)
    return Comparison(what, Verdict.WRONG, measured, None, lines, frozenset(found))


def _is_whole(views: Tensor) -> bool:
    return {-1.0, 0.0, 1.0}.issuperset(views.unique().tolist())
