"""How one quantity of two sides compares: the verdict, and the figures that it rests on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Pace(StrEnum):
    """The verdict on a quantity's time."""

    FASTER = "FASTER"
    SAME = "SAME"
    SLOWER = "SLOWER"
    AMBIGUOUS = "AMBIGUOUS"
    NOT_COMPARED = "NOT-COMPARED"


@dataclass(frozen=True)
class Judgement:
    """One quantity of two sides; ratios are the second side's time over the first's, so that 1.05 is 5 % slower."""

    quantity: str
    pace: Pace
    before_ms: float
    """The first side's median: the baseline's, or A's."""
    after_ms: float
    """The second side's median: the subject's, or B's."""
    ratio: float
    low: float
    """The ratio's interval, from here ..."""
    high: float
    """... to here, at the confidence that the verdict asks for."""
    limit: float
    """How much slower is allowed: 0.05 is 5 %."""
    rounds: int
    """Pairs of rounds, or rounds of the side with fewer."""
    wanted: int
    """How many would settle it, estimated; as many as there are where it is settled."""
    reason: str = ""
    """Why it was not compared, or why more rounds would not settle it."""

    @property
    def settled(self) -> bool:
        """Whether more rounds would change nothing."""
        return self.pace is not Pace.AMBIGUOUS
