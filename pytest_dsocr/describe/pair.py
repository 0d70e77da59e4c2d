"""Two tensors as rows of channels, and the share of their difference that a prediction explains.

Shapes: B views, N rows of a view, C channels.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pytest_dsocr.base.words import joined, ordinal
from pytest_dsocr.describe.description import Description

LEAST_OF_LARGEST = 0.01
"""Difference of a row, relative to the largest one, from which on the row differs."""
SEED = 48
TINY = 1e-30
ONE = ("one of ", "view ", "window ", "channel ")
"""First words of a name of one row."""
ONLY = "only "
"""Start of a sentence on rows besides which all are equal."""
DIFFER = "differs", "differ"
"""Verb of one row, and of several."""
EXACT = 0.99
"""Share of a difference from which on no other relation is looked for."""


def spread(count: int, most: int) -> Tensor:
    """Return places among ``count``, at most this many, spread evenly from the first to the last."""
    return torch.linspace(0, count - 1, min(most, count)).long()


def worst_of(actual: Tensor, expected: Tensor) -> int:
    """Return the place on the first axis where two tensors of float32 differ most."""
    return int((actual - expected).flatten(1).norm(dim=1).argmax())


@dataclass(frozen=True, eq=False)
class RowPair:
    """The subject's tensor and the expected one, ``[B, N, C]`` float32."""

    actual: Tensor
    expected: Tensor
    noun: str = "row"
    """Name of a row, such as ``token``."""
    grid: tuple[int, int] | None = None
    """Height and width of the last rows of each view, if they lie in a plane."""
    places: Mapping[str, Tensor] = field(default_factory=dict)
    """Rows with a meaning, such as ``the image's tokens``, as masks ``[N]``; the simplest first."""
    given: Tensor | None = None
    """Input of the block that returned the tensor, in the same shape."""
    noise: float = 1e-5
    """Relative error of a row that is mere rounding."""
    item: str = "view"
    """Name of what the first axis counts, such as ``window``."""

    @property
    def apart(self) -> Tensor:
        """The difference."""
        return self.actual - self.expected

    @property
    def error(self) -> float:
        """Norm of the difference over the norm of the expected tensor."""
        return float(self.apart.norm() / self.expected.norm().clamp_min(1e-30))

    @property
    def differing(self) -> Tensor:
        """Rows that differ by more than rounding and by a share of the largest difference, ``[B, N]``."""
        rows = self.apart.norm(dim=-1)
        least = torch.maximum(LEAST_OF_LARGEST * rows.max(), self.noise * self.expected.norm(dim=-1))
        differ: Tensor = rows > least
        return differ

    @property
    def not_equal(self) -> Tensor:
        """Rows that differ by more than rounding, however little next to the largest difference, ``[B, N]``."""
        differ: Tensor = self.apart.norm(dim=-1) > self.noise * self.expected.norm(dim=-1)
        return differ

    def meaning(self, row: int) -> str:
        """Return the smallest place that a row is in, in brackets; empty if there is none."""
        inside = [(int(mask.sum()), name) for name, mask in self.places.items() if mask[row]]
        return f" ({min(inside)[1]})" if inside else ""

    def only(self, rows_N: Tensor) -> RowPair:
        """Return the pair of some rows of each view."""
        given = None if self.given is None else self.given[:, rows_N]
        return replace(
            self, actual=self.actual[:, rows_N], expected=self.expected[:, rows_N], grid=None, places={}, given=given
        )


def share(pair: RowPair, predicted: Tensor, rows: Tensor | None = None) -> float:
    """Return the share of the difference that a prediction explains: of all rows together, and of the median row.

    The smaller of both counts, so that neither a few large rows nor many small ones decide alone.

    Args:
        pair: two tensors of one shape.
        predicted: prediction of the subject's tensor.
        rows: mask ``[B, N]`` of the rows that count; all by default.
    """
    counted = torch.ones_like(pair.differing) if rows is None else rows
    differing = pair.differing & counted
    if not differing.any():
        return 0.0
    left, before = ((pair.actual - one).norm(dim=-1) for one in (predicted, pair.expected))
    before = torch.minimum(before, pair.actual.norm(dim=-1))  # any small tensor is nearly zero times the expected one
    rounding = pair.noise * pair.expected.norm(dim=-1)
    left, before = (left - rounding).clamp_min(0), torch.maximum(before, rounding)
    whole = 1 - float(left[counted].norm() / before[counted].norm().clamp_min(TINY))
    typical = 1 - float((left[differing] / before[differing].clamp_min(TINY)).median())
    return max(0.0, min(whole, typical))


def halves(shape: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return two complementary random masks: one to fit a relation, one to verify it."""
    made = torch.Generator().manual_seed(SEED)
    first = torch.rand(tuple(shape), generator=made) < 0.5
    return first, ~first


def simplest(found: Iterable[Description | None]) -> Description | None:
    """Return the first description that explains all but rounding, or else the first that explains enough."""
    enough: Description | None = None
    for one in found:
        if one is not None and one.share >= EXACT:
            return one
        enough = enough or (one if one is not None and one.explains else None)
    return enough


def ranges(numbers: Sequence[int], most: int = 4) -> str:
    """List numbers as ranges in words: ``3, 5 to 9 and 12``; the end is left out if there are too many."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    if not runs:
        return "none"
    shown = [str(one[0]) if len(one) == 1 else f"{one[0]} to {one[-1]}" for one in runs[:most]]
    if len(runs) > most:
        strides = {other - one for one, other in itertools.pairwise(numbers)}
        if len(strides) == 1:
            return f"{numbers[0]}, {numbers[1]} and so on, every {ordinal(strides.pop())}"
        return f"{', '.join(shown)} and so on"
    return joined(shown)


def named(noun: str, numbers: Sequence[int]) -> str:
    """Return a noun with its numbers, such as ``rows 3 and 7``."""
    return f"{noun}{'s' * (len(numbers) != 1)} {ranges(numbers)}"


def views_named(places: Sequence[int], item: str = RowPair.item) -> str:
    """Return views, or other items, by their numbers from 1 on, of places from 0 on."""
    return named(item, [one + 1 for one in places])


def confined_to(pair: RowPair, inside: Tensor, words: str, verbs: tuple[str, str] = DIFFER) -> str:
    """Say that a difference is in some rows, and only in these if all others are equal; empty if it is not.

    Args:
        pair: two tensors of one shape.
        inside: mask of the rows ``[B, N]``.
        words: name of the rows.
        verbs: verb of one row, and of several.
    """
    if not (pair.not_equal & ~inside).any():
        return f"{ONLY}{words} {verbs[not words.startswith(ONE)]}"
    kept = float(pair.apart[inside].square().sum() / pair.apart.square().sum().clamp_min(TINY))
    return f"nearly all of the difference is in {words}" if kept >= EXACT else ""


def times(number: int) -> str:
    """Return ``one``, or the number in digits."""
    return "one" if number == 1 else str(number)
