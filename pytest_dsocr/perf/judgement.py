"""How one quantity of two sides compares: the verdict, and the figures that it rests on."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


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

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON values: a number that is none is null, for which JSON has no other word."""
        values = {name: None if value != value else value for name, value in asdict(self).items()}
        return {**values, "pace": str(self.pace)}

    @property
    def settled(self) -> bool:
        """Whether more rounds would change nothing."""
        return self.pace is not Pace.AMBIGUOUS
