"""Passes of a block, joined by their place: all crops, the page, and the whole prompt.

The vendor's code calls a block once for each of the three. A port may encode the crops in chunks or one by one, the
page first, everything twice for a warm-up, and the prompt in chunks. Shapes tell which calls make up one tensor.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from pytest_dsocr.contract import GRID
from pytest_dsocr.contract.presets import crop_count
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import Seam

CallShape = tuple[int, ...]
BlockName = tuple[str, int]
"""A stage, and the depth of one of its blocks."""
T = TypeVar("T")

ONE_SIZE = "crops and page have one size, and are not encoded in one call each"
SURPLUS = "calls have more views or tokens than the page and the prompt, as padded batches have"


@dataclass
class Pass(Generic[T]):
    """Single call of a block."""

    shape: CallShape
    out: T


class Place(NamedTuple):
    """A tensor that the reference has of a block."""

    name: str
    """Name of the seam, such as ``STAGE.page/3``."""
    shape: CallShape
    """``[views, ..., C]``, or ``[1, S, C]`` of the prompt."""
    axis: int
    """Dimension along which calls are joined: 0 for views, 1 for the prompt's tokens."""
    run: int
    """Length along ``axis`` that the subject's own inputs have: views of all images, or tokens."""

    @property
    def is_whole(self) -> bool:
        """Whether a tensor of this shape is all that one run of the stage gives."""
        return self.run == self.shape[self.axis]

    def takes(self, shape: CallShape) -> bool:
        """Return whether a call of this shape may be a part of the tensor."""
        own, other = list(self.shape), list(shape)
        return len(own) == len(other) and own[: self.axis] + own[self.axis + 1 :] == (
            other[: self.axis] + other[self.axis + 1 :]
        )

    def joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Join the outputs of calls; of several images, the first one's views are kept."""
        return (parts[0] if len(parts) == 1 else torch.cat([*parts], self.axis))[: self.shape[0]]

    def is_padded(self, shape: CallShape) -> bool:
        """Return whether a call has more tokens a row, or as many in more rows. One with fewer has lost some."""
        width = shape[-1] == self.shape[-1]
        return width and (prod(shape[1:]), shape[0]) > (prod(self.shape[1:]), self.shape[0])


Places = Mapping[BlockName, Sequence[Place]]


def places_of(seams: Mapping[str, Seam], inputs: Mapping[str, Tensor]) -> Places | None:
    """Return the places of a reference's tensors of blocks; None if it has no such tensors.

    Args:
        seams: the reference's. With several images, those of blocks are of the first image.
        inputs: the subject's own.
    """
    found: dict[BlockName, list[Place]] = {}
    grids = inputs[GRID].tolist()
    for name, seam in seams.items():
        (stage, view, depth), shape = TensorName.parse(name), seam.shape
        if depth is not None:
            axis, run = 0, shape[0]
            if stage == PREFILL:
                axis, run = 1, inputs["input_ids"].shape[1]
            elif len(grids) > 1:
                run = sum(crop_count((grid[0], grid[1])) for grid in grids) if view == "crops" else len(grids)
            found.setdefault((stage, depth), []).append(Place(name, shape, axis, max(run, 1)))
    return found or None


class Passes(Generic[T]):
    """Passes of blocks, and the tensors that they make up.

    Args:
        places: the expected tensors; None for the vendor's way to call a block. Then the first pass over the page, the
            crops and the prompt counts.
    """

    def __init__(self, places: Places | None = None) -> None:
        self.are_cut_short = False
        """Whether an error ended the calls, so that some passes are missing."""
        self._are_vendors = places is None
        self._places = {block: [*own] for block, own in (places or {}).items()}
        self._passes: dict[BlockName, list[Pass[T]]] = {}

    def wants(self, block: BlockName, shape: CallShape) -> bool:
        """Return whether a pass may belong to a tensor."""
        if not self._are_vendors:
            return block in self._places
        known, own = self._places.setdefault(block, []), _vendors(block, shape)
        is_new = shape[1] > 1 and all(one.name != own.name for one in known)
        known += [own] * is_new
        return is_new

    def is_whole(self, block: BlockName, shape: CallShape) -> bool:
        """Return whether a pass is a tensor of its own, which need not be joined."""
        return any(place.is_whole and place.shape == shape for place in self._places[block])

    def keep(self, block: BlockName, one: Pass[T]) -> None:
        """Add a pass; the order of calls counts."""
        self._passes.setdefault(block, []).append(one)

    def joined(self) -> Iterator[tuple[BlockName, Place, Sequence[Pass[T]] | str]]:
        """Yield the passes that make up each tensor, as :func:`placed` does."""
        for block, passes in self._passes.items():
            for place, run in placed(passes, self._places[block]):
                if not (self.are_cut_short and self._may_be_cut(block, place, run)):
                    yield block, place, run

    def _may_be_cut(self, block: BlockName, place: Place, run: Sequence[Pass[T]] | str) -> bool:
        """Return whether calls are missing: this run is not whole, or a later one has started."""
        begun = [
            _begun(passes, other)
            for name, passes in self._passes.items()
            for other in self._places[name]
            if other.axis == place.axis
        ]
        is_short = isinstance(run, str) or sum(one.shape[place.axis] for one in run) < place.run
        return is_short or _begun(self._passes[block], place) < max(begun)


def _begun(passes: Sequence[Pass[T]], place: Place) -> int:
    """Return the number of runs with calls that may be parts of a tensor, the last one whole or not."""
    return -(-sum(one.shape[place.axis] for one in passes if place.takes(one.shape)) // place.run)


def _vendors(block: BlockName, shape: CallShape) -> Place:
    """Return the place of a call of the vendor's code: a page is one view, and crops are at least two."""
    (stage, depth), axis = block, int(block[0] == PREFILL)
    view = "" if axis else "crops" if shape[0] > 1 else "page"
    return Place(str(TensorName(stage, view, depth)), shape, axis, shape[axis])


def placed(passes: Sequence[Pass[T]], places: Sequence[Place]) -> Iterator[tuple[Place, Sequence[Pass[T]] | str]]:
    """Yield the passes that make up each tensor of a block, or why the place of its values is not known.

    A tensor that no pass is of is left out. If views or tokens are missing, or the width is another one, the passes are
    yielded as they are: only a wrong port gives such shapes.
    """
    own = {place.name: [one for one in passes if place.takes(one.shape)] for place in places}
    if len({place.shape[1:] for place in places}) < len(places):
        if not _is_plain(passes, places):
            yield from ((place, ONE_SIZE) for place in places if own[place.name])
            return
        own = {place.name: [one for one in passes if one.shape == place.shape] for place in places}
    runs = {place.name: _last_run(own[place.name], place) for place in places}
    used = {id(one) for name, run in runs.items() if run is not None for one in own[name]}
    left = [one for one in passes if id(one) not in used and one.shape[1] > 1]
    for place in places:
        if run := runs[place.name]:
            yield place, run
        elif run is None:
            yield place, SURPLUS
        elif left:
            other = next((one for one in left if (one.shape[0] > 1) == (place.shape[0] > 1)), left[0])
            yield place, SURPLUS if place.is_padded(other.shape) else [other]


def _is_plain(passes: Sequence[Pass[T]], places: Sequence[Place]) -> bool:
    """Return whether each place has a call of its own equally often, or none, if one size makes others ambiguous."""
    taken = [one.shape for one in passes if any(place.takes(one.shape) for place in places)]
    times = [taken.count(place.shape) for place in places]
    return sum(times) == len(taken) and len({*times}) == 1


def _last_run(passes: Sequence[Pass[T]], place: Place) -> Sequence[Pass[T]] | None:
    """Return the passes of the last run, since a warm-up comes first; all if these are too few, None if it is unknown.

    A run ends with a call. Calls of one token that follow a prompt are decode steps.
    """
    ends, total = [0], 0
    for number, one in enumerate(passes, 1):
        total += one.shape[place.axis]
        if total == place.run:
            ends.append(number)
            total = 0
    runs = [passes[start:end] for start, end in pairwise(ends)]
    rest = passes[ends[-1] :]
    if not rest or (runs and place.axis == 1 and _are_steps(rest) and not _are_steps(runs[-1][:1])):
        return runs[-1] if runs else []
    if rest[-1].shape[place.axis] == place.run:
        return rest[-1:]
    return rest if not runs and total < place.run else None


def _are_steps(passes: Sequence[Pass[T]]) -> bool:
    return all(one.shape[1] == 1 for one in passes)
