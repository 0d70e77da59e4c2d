"""Several readings of one page by one process: how often they fail, and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import comb, gcd
from typing import TYPE_CHECKING

from pytest_dsocr.base.words import listed
from pytest_dsocr.compare.verdict import SEVERITY, Comparison
from pytest_dsocr.contract import COMPARED

if TYPE_CHECKING:
    from pytest_dsocr.records.subject_result import Reading

REPEATED = (*COMPARED, "read", "text", "spans", "boxes")
"""Comparisons that are made for each reading."""
SURE = 0.95
CHANCES, ALIKE = 100, 5
"""Least number of possible patterns, or of failing readings with one text, that rules out chance."""
CHANCE = "by chance: look for a race of streams or threads, memory read before it is written, a draw without a seed"
STATE = "by what was read before: look for a cache not emptied, what is kept of a page by its name or ids, what grows"
EITHER = "by chance, or by what was read before; more readings tell them apart"
"""Also if no page that was read before distinguishes them, and a count of readings does."""


def excluded(readings: int) -> float:
    """Return R: ``readings`` independent readings show a fault that occurs in one of R with 95 % probability."""
    return float(1 / (1 - (1 - SURE) ** (1 / readings)))


@dataclass(frozen=True)
class Readings:
    """The readings of a page, and the comparisons of each."""

    made: Sequence[Reading]
    found: Sequence[Sequence[Comparison]]

    @property
    def failing(self) -> tuple[int, ...]:
        """Numbers of the readings that fail, counted from 1."""
        return _failing([all(one.passes for one in found if one.what in REPEATED) for found in self.found])

    @property
    def why(self) -> str:
        """Reason that some fail or that they differ; empty if all fail alike."""
        failing, of = self.failing, len(self.made)
        texts = {self.made[k - 1].answer.text for k in failing}
        if not failing or (len(failing) == of and len(texts) == 1):
            return ""
        if len(failing) == of or not self._pattern(failing)[1]:
            return EITHER if len(failing) in (1, of) or self._is_counted(failing) else CHANCE
        return STATE if comb(of, len(failing)) >= CHANCES or (len(failing) >= ALIKE and len(texts) == 1) else EITHER

    def summed(self) -> Iterator[Comparison]:
        """Yield the gravest comparison of each name over all readings, with the numbers of those readings."""
        each = [{one.what: one for one in found} for found in self.found]
        for what, first in each[0].items():
            yield self._summed([one[what] for one in each]) if what in REPEATED else first

    def _summed(self, each: Sequence[Comparison]) -> Comparison:
        failing, of = _failing([one.passes for one in each]), len(each)
        gravest = max((one for one in each if one.passes != bool(failing)), key=lambda one: SEVERITY.index(one.verdict))
        if not failing:
            return gravest
        which = f" ({listed([*map(str, failing)])}, {self._pattern(failing)[0]})" if len(failing) < of else ""
        return replace(gravest, measured=f"wrong in {len(failing)} of {of} readings{which}: {gravest.measured}")

    def _is_counted(self, failing: Sequence[int]) -> bool:
        """Return whether every N-th reading of the process fails, for some N, as a counter would cause."""
        first, *others = (self.made[k - 1].place for k in failing)
        behind = [one.place - first for k, one in enumerate(self.made, 1) if k not in failing and one.place > first]
        return all(place % gcd(*(other - first for other in others)) for place in behind)

    def _pattern(self, failing: Sequence[int]) -> tuple[str, bool]:
        """Return what precedes the failing readings, and whether it distinguishes two or more from all others."""
        own, first = self.made[0].answer.case_id, self.made[failing[0] - 1]
        bad, good = (
            [one.after for k, one in enumerate(self.made, 1) if (k in failing) is fails] for fails in (True, False)
        )
        after = [_named(one, own) for one in dict.fromkeys(bad)]
        if len(failing) > 1 and failing == _failing([k < failing[0] for k, _ in enumerate(self.made, 1)]):
            return f"each from reading {first.place} of its process on, after {after[0]}", True
        if len(after) == 1:
            return f"{'each ' * (len(failing) > 1)}after {after[0]}", len(failing) > 1 and bad[0] not in good
        if own not in bad:
            return "each after another page", {*good} <= {own, ""}
        return f"after {listed(after, 2)}", False


def _failing(passes: Sequence[bool]) -> tuple[int, ...]:
    return tuple(k for k, one in enumerate(passes, 1) if not one)


def _named(case: str, own: str) -> str:
    return "itself" if case == own else case or "nothing"
