"""Relations between the ids, masks and grids of two prompts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from PIL import Image

from pytest_dsocr.base.words import are, count, listed, quoted
from pytest_dsocr.contract.presets import Grid, Preset, Tiling, crop_grid, image_token_count
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.describe import id_maps
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.edits import Edit, described_by, edit_script, explained, moved
from pytest_dsocr.describe.measured import measured

MOST_EDITS = 3
"""Largest number of edits that are a description; more are an anatomy."""
LONGEST_REPLACED = 8
"""Largest number of tokens that an edit replaces by others."""
CROPS_PX = (224, 256, 336, 384, 448, 512, 560, 672, 768, 1024)
"""Sides of other models' crops."""
LIMITS_PX = (512, 640, 768, 896, 1024, 1280, 1344, 1536, 1600, 2000, 2048)
"""Longest sides to which servers shrink a page."""
MOST_TOKENS = 4
"""Largest number of an edit's tokens that are named."""
MOST_SHIFT = 16
"""Farthest shift of a mask that is tried."""


@dataclass(frozen=True)
class Vocabulary:
    """Ids of a checkpoint and their text."""

    tokenizer: TextTokenizer
    size: int
    """Number of its ids."""

    def named(self, token: int) -> str:
        """Return an id with its name or text."""
        special = self.tokenizer.special
        names = {special.image: "<image>", special.pad: "padding", special.eos: "EOS", special.bos: "BOS"}
        if token in names:
            return f"{token} ({names[token]})"
        return f"{token} ({quoted(self.tokenizer.decode([token]))})" if self.has(token) else str(token)

    def has(self, token: int) -> bool:
        """Return whether the checkpoint has an id."""
        return 0 <= token < self.size


def of_ids(actual: Sequence[int], expected: Sequence[int], vocabulary: Vocabulary) -> Iterator[Description]:
    """Yield relations between the ids of two prompts, the simplest first, and an anatomy last."""
    edits, of = edit_script(actual, expected), len(expected)
    if (move := moved(actual, expected)) is not None:
        text = f"{count(move.size, 'token')} from {move.old:,} on moved to {move.new:,}"
        yield Description("moved", text, 1.0, of)
    yield from measured(id_maps.relations, actual, expected)
    yield from measured(_of_all, actual, expected)
    if 0 < len(actual) < of and [*actual] == [*expected[: len(actual)]]:
        text = f"the ids end after {len(actual):,} of {of:,}; missing: {_tokens(expected[len(actual) :], vocabulary)}"
        yield Description("cut", text, 1.0, of)
    if few := described_by(edits, MOST_EDITS, LONGEST_REPLACED):
        text = "; ".join(_said(one, vocabulary, expected) for one in few)
        text += _outside(few, vocabulary)
        yield Description(_kind(edits[0]), text, explained(edits, len(few)), sum(len(one.places) for one in few))
    new = [one for edit in edits for _ in edit.places for one in edit.new if isinstance(one, int)]
    if new and (alien := [one for one in new if not vocabulary.has(one)]):
        text = (
            f"{len(alien)} of {count(len(new), 'other id')} {are(len(alien))} outside the checkpoint's vocabulary of "
        )
        text += f"{vocabulary.size:,}: {listed([*map(str, dict.fromkeys(alien))], MOST_TOKENS)}"
        yield Description("other-vocabulary", text, len(alien) / len(new), len(alien))
    yield Description("anatomy", _anatomy(actual, expected), 0.0, of)


def _of_all(actual: Sequence[int], expected: Sequence[int]) -> Iterator[Description]:
    """Yield relations of all ids: one offset, or the opposite order."""
    apart = [a - b for a, b in zip(actual, expected, strict=False) if a != b]
    kinds = {one for one, other in zip(expected, actual, strict=False) if one != other}
    if len(actual) == len(expected) and len({*apart}) == 1 and len(kinds) > 1:
        yield Description("offset", f"{len(apart):,} of {len(expected):,} ids are {apart[0]:+,}", 1.0, len(apart))
    if [*actual] == [*expected[::-1]]:
        yield Description("reversed", "the ids in the opposite order", 1.0, len(expected))


def _kind(edit: Edit) -> str:
    return "replaced" if edit.old and edit.new else "inserted" if edit.new else "left-out"


def _said(edit: Edit, vocabulary: Vocabulary, expected: Sequence[int]) -> str:
    """Return an edit in words, with its places."""
    old, new = (_tokens(one, vocabulary) for one in (edit.old, edit.new))
    old = old.removeprefix("token ") if len(edit.new) == 1 else old
    what = f"{new} in place of {old}" if old and new else f"{new} inserted" if new else f"{old} left out"
    if len(edit.places) > 1:
        return f"{what} at {_places(edit.places)}"
    [at] = edit.places
    what = f"one {what}" if what.startswith("token ") and not (edit.old and edit.new) else what
    alike = {*edit.old, *edit.new}
    run = sum(1 for one in expected if {one} == alike)
    if run > 1 and len(alike) == 1 and not (edit.old and edit.new):  # one more of a run has no place of its own
        return f"{what} among {run:,}"
    return f"{what} at {at:,}{' (the end)' * (at == len(expected))}"


def _places(places: Sequence[int]) -> str:
    steps = {b - a for a, b in itertools.pairwise(places)}
    each = f", each {next(iter(steps)):,} apart" if len(steps) == 1 and len(places) > 2 else ""
    return f"{len(places)} places from {places[0]:,} on{each}"


def _tokens(ids: Sequence[object], vocabulary: Vocabulary) -> str:
    """Return ids in words; equal ones in a row are counted."""
    tokens = [one for one in ids if isinstance(one, int)]
    if len(tokens) < 2:
        return f"token {vocabulary.named(tokens[0])}" if tokens else ""
    runs = [(one, len([*run])) for one, run in groupby(tokens)]
    names = [f"{f'{size:,} times ' * (size > 1)}{vocabulary.named(one)}" for one, size in runs[:MOST_TOKENS]]
    if len(runs) == 1:
        return names[0]
    more = sum(size for _, size in runs[MOST_TOKENS:])
    return f"{len(tokens):,} tokens {', '.join(names)}{f' and {more:,} more' if more else ''}"


def _outside(edits: Sequence[Edit], vocabulary: Vocabulary) -> str:
    alien = [one for edit in edits for one in edit.new if isinstance(one, int) and not vocabulary.has(one)]
    return f"; outside the checkpoint's vocabulary of {vocabulary.size:,}" if alien else ""


def _anatomy(actual: Sequence[int], expected: Sequence[int]) -> str:
    pairs = zip(actual, expected, strict=False)
    first = next((k for k, (a, b) in enumerate(pairs) if a != b), min(len(actual), len(expected)))
    ends = zip(actual[:first:-1], expected[:first:-1], strict=False)
    last = next((k for k, (a, b) in enumerate(ends) if a != b), 0)
    some = "" if first == 1 else f" {first:,}"
    text = f"the first{some} of {len(expected):,} ids {are(first)} right"
    return f"{text}, and the last{'' if last == 1 else f' {last:,}'}" if last else text


def of_counts(actual: int, preset: Preset, grid: Grid, own: Grid | None = None) -> Iterator[Description]:
    """Yield the arithmetic of another number of image tokens.

    Args:
        actual: the subject's number.
        preset: how the page is cut.
        grid: the expected grid.
        own: the subject's grid, if it is known.
    """
    expected, columns_rows = image_token_count(preset, grid), " x ".join(map(str, grid))
    page = image_token_count(preset, (1, 1))
    without = replace(preset, layout=replace(preset.layout, newlines=False))
    newlines_of_crops = expected - page - image_token_count(without, grid) + image_token_count(without, (1, 1))
    crops, named = expected - page, f"{actual:,} image tokens in place of {expected:,}"
    parts = {
        "without the page's": crops,
        "without the crops'": page,
        "without the separator": expected - 1,
        "without newlines": image_token_count(without, grid),
        "with newlines for each crop by itself": expected + (grid[0] - 1) * newlines_of_crops,
    }
    for words, number in parts.items():
        if number == actual != expected:
            yield Description("count", f"{named}: {words}", 1.0, expected)
    grids = [one for one in preset.tiling.grids if own in (None, one) and image_token_count(preset, one) == actual]
    if grids:
        text = f"{named}: those of a grid of {' or '.join(f'{a} x {b}' for a, b in grids)}"
        yield Description("count", text, 1.0, expected)
    yield Description("anatomy", f"{named} for a grid of {columns_rows}", 0.0, expected)


def of_rule(actual: Mapping[tuple[int, int], Grid], preset: Preset) -> Iterator[Description]:
    """Yield the number in the rule for grids that leads to those of all pages: a size of crops or pages, or a bound.

    Args:
        actual: the subject's grid by the width and height of a page.
        preset: how the model cuts pages.
    """
    tiling = preset.tiling
    for crop_px in CROPS_PX:
        rule = replace(tiling, crop_px=crop_px)
        if all(crop_grid(*size, rule) == grid for size, grid in actual.items()):
            text = f"the grids are those of crops of {crop_px} px instead of {tiling.crop_px}"
            yield Description("grid", text, 1.0, len(actual))
    tied = [
        crop_px
        for crop_px in CROPS_PX
        if all(_tied(size, tiling, replace(tiling, crop_px=crop_px)) == grid for size, grid in actual.items())
    ]
    if tied:
        sides = " or ".join(map(str, tied))
        text = f"of equally near grids, the larger is used as if crops had {sides} px instead of {tiling.crop_px}"
        yield Description("grid", text, 1.0, len(actual))
    for limit in LIMITS_PX:
        if all(crop_grid(*_within(size, limit), tiling) == grid for size, grid in actual.items()):
            text = f"the grids are those of pages shrunk to at most {limit:,} px a side"
            yield Description("grid", text, 1.0, len(actual))

    for words, measure in _measures(preset).items():
        values = sorted({*map(measure, tiling.grids)})
        fit = [one for one in values[:-1] if _is_bound(actual, tiling, measure, one)]
        if fit:
            above = values[values.index(fit[-1]) + 1]
            text = f"the grids are those with at most {fit[0]:,} {words}; none is chosen that has {above:,} or more"
            yield Description("grid", text, 1.0, len(actual))


def _measures(preset: Preset) -> Mapping[str, Callable[[Grid], int]]:
    """Return sizes of a grid that a port may bound, by their words."""
    return {
        "image tokens": lambda grid: image_token_count(preset, grid),
        "crops": math.prod,
        "columns": lambda grid: grid[0],
        "rows": lambda grid: grid[1],
        "crops along a side": max,
    }


def _is_bound(
    actual: Mapping[tuple[int, int], Grid], tiling: Tiling, measure: Callable[[Grid], int], most: int
) -> bool:
    """Return whether every page has the nearest grid of those within a bound."""
    grids = [one for one in tiling.grids if measure(one) <= most]
    return all(crop_grid(*size, tiling, grids) == grid for size, grid in actual.items())


def _tied(size: tuple[int, int], tiling: Tiling, rule: Tiling) -> Grid:
    """Return the grid of a page that is cut by one size of crops, with ties decided by another."""
    return (1, 1) if max(size) <= max(tiling.crop_px, rule.crop_px) else crop_grid(*size, rule)


def _within(size: tuple[int, int], limit: int) -> tuple[int, int]:
    """Return the size that Pillow's ``thumbnail`` gives a page."""
    if max(size) <= limit:
        return size
    with Image.new("1", size) as page:
        page.thumbnail((limit, limit), Image.Resampling.NEAREST)
        return page.size


def of_mask(actual: Sequence[bool], expected: Sequence[bool], ids: Sequence[int], image: int) -> Iterator[Description]:
    """Yield relations between the masks of two prompts, the simplest first.

    Args:
        actual: the subject's mask.
        expected: the reference's.
        ids: ids of the subject's prompt.
        image: id of an image token.
    """
    of = len(expected)
    marked, wanted = sum(actual), sum(expected)
    if not marked:
        yield Description("zero", f"no position is marked; the reference marks {wanted:,}", 1.0, of)
    if [*actual] == [not one for one in expected]:
        yield Description("inverted", "every position is inverted", 1.0, of)
    for shift in sorted(range(-MOST_SHIFT, MOST_SHIFT + 1), key=abs):
        if shift and marked == wanted and _shifted(expected, shift) == [*actual]:
            way = "later" if shift > 0 else "earlier"
            yield Description("shifted", f"the mask begins {count(abs(shift), 'position')} {way}", 1.0, of)
    if [*actual] == [one == image for one in ids]:
        text = f"the mask marks the subject's own {marked:,} image ids; the reference has {wanted:,}"
        yield Description("follows-ids", text, 1.0, of)
    edges = [
        (k, after)
        for k, (one, after) in enumerate(zip((False, *actual), (*actual, False), strict=True))
        if one != after
    ]
    runs = [f"{k:,}" for k, _ in edges]
    own = listed([f"{a} to {b}" for a, b in zip(runs[::2], runs[1::2], strict=True)], MOST_EDITS) or "none"
    first, last = [*expected].index(True) if wanted else 0, of - [*expected][::-1].index(True) if wanted else 0
    text = f"positions {own} of {len(actual):,} are marked; the reference marks {first:,} to {last:,} of {of:,}"
    yield Description("ranges", text, 1.0 if len(edges) <= 2 * MOST_EDITS else 0.0, of)


def _shifted(mask: Sequence[bool], shift: int) -> list[bool]:
    kept = [*mask][: len(mask) - shift] if shift > 0 else [*mask][-shift:]
    return [False] * shift + kept if shift > 0 else kept + [False] * -shift


def of_grids(actual: Sequence[Grid], expected: Sequence[Grid]) -> Iterator[Description]:
    """Yield relations between the grids of crops."""
    own, other = (listed([f"{one[0]} x {one[1]}" for one in of]) or "none" for of in (actual, expected))
    named = f"a grid of {own} in place of {other}, columns x rows"
    relations = {
        "exchanged": [tuple(one[::-1]) for one in expected],
        "whole": [(1, 1)] * len(expected),
        "zero": [(0, 0)] * len(expected),
    }
    words = {"exchanged": ": exchanged", "whole": ": not cut", "zero": ": none"}
    for kind, made in relations.items():
        if [tuple(one) for one in actual] == made:
            yield Description(kind, named + words[kind], 1.0, len(expected))
    yield Description("replaced", named, 1.0, len(expected))
