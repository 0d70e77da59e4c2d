"""What a comparison can say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from pytest_dsocr.compare.signs import Reason, Sign
from pytest_dsocr.foundation.exact import exact
from pytest_dsocr.foundation.words import shown

if TYPE_CHECKING:
    from pytest_dsocr.compare.diff import Line


class Verdict(StrEnum):
    """How a comparison ended; NOT-COMPARED is not a pass by itself, see :attr:`Comparison.passes`."""

    MATCH = "MATCH"
    """Equal."""
    DRIFT = "DRIFT"
    """Different, inside the tolerance."""
    TIE_FLIP = "TIE-FLIP"
    """Another token where the reference's own best two were within rounding of each other, or what follows of it."""
    WRONG = "WRONG"
    """Outside the tolerance."""
    NOT_COMPARED = "NOT-COMPARED"
    """One side has nothing to compare."""


PASSING = frozenset((Reason.NEITHER, Reason.NOT_OFFERED))
"""Why something may be left uncompared: nobody has it, or nobody promised it."""
REFERENCE = "the reference"
"""What the other side is called, where nobody calls it something else."""
SEVERITY = (Verdict.NOT_COMPARED, Verdict.MATCH, Verdict.DRIFT, Verdict.TIE_FLIP, Verdict.WRONG)


@dataclass(frozen=True)
class Comparison:
    """The comparison of one thing of a case."""

    what: str
    """``input_ids``, ``sam.page``, ``tokens``, ``result.mmd`` and so on."""
    verdict: Verdict
    measured: str
    """What was found, beside what is allowed, in a phrase."""
    error: float | None = None
    """The relative error, of tensors."""
    details: tuple[str, ...] = ()
    """The first places where the two part, a line each."""
    signs: frozenset[Sign] = frozenset()
    """What was found, for whoever looks for the cause."""
    reason: Reason | None = None
    """Why it was not compared; None where it was."""
    diff: tuple[Line, ...] = ()
    """The first places where two texts differ."""
    lost_to: Exception | None = field(default=None, compare=False, repr=False)
    """The error that this was lost to; whoever asked for the comparison raises it."""

    @property
    def stage(self) -> str:
        """Its stage: ``sam`` for ``sam.page/3``, and ``result.mmd`` for itself."""
        return self.what if self.what == "result.mmd" else self.what.partition("/")[0].partition(".")[0]

    @property
    def passes(self) -> bool:
        """Whether a run may pass with it: nothing is WRONG, and nothing that was promised was left uncompared."""
        if self.verdict is Verdict.NOT_COMPARED:
            return self.reason in PASSING
        return self.verdict is not Verdict.WRONG


def equal(what: str, actual: object, expected: object, measured: str, other: str = REFERENCE) -> Comparison:
    """Compare two exact things; ``measured`` is said where they are equal, and ``other`` names the other side."""
    actual, expected = exact(actual), exact(expected)
    if actual == expected:
        return Comparison(what, Verdict.MATCH, measured)
    return Comparison(what, Verdict.WRONG, f"{shown(actual)}; {other} has {shown(expected)}")


def not_compared(what: str, reason: Reason, measured: str = "") -> Comparison:
    """Say why something was not compared; ``measured`` may say it in more words."""
    return Comparison(what, Verdict.NOT_COMPARED, measured or str(reason), reason=reason)


def lost(what: str, error: Exception) -> Comparison:
    """Say that something was not compared because a side raised an error."""
    measured = f"{Reason.LOST}: {shown(str(error), 120)}"
    return Comparison(what, Verdict.NOT_COMPARED, measured, reason=Reason.LOST, lost_to=error)


def worst(comparisons: Iterable[Comparison]) -> Verdict:
    """Return the gravest verdict; NOT-COMPARED where nothing was compared."""
    verdicts = {comparison.verdict for comparison in comparisons}
    return max(verdicts, key=SEVERITY.index, default=Verdict.NOT_COMPARED)


def as_expected(what: str, found: object, expected: object, why: str) -> Comparison:
    """Compare what was found with what is expected; ``why`` says in a phrase why it is."""
    found, expected = exact(found), exact(expected)
    if found == expected:
        return Comparison(what, Verdict.MATCH, f"{shown(found)}, {why}")
    return Comparison(what, Verdict.WRONG, f"{shown(found)}; expected {shown(expected)}, {why}")
