"""The rule by which a cause is proven.

A proof is a promise: you fix the named cause and look no further. It takes a complete search and a single cause. Chance
must be unlikely too: enough values must be equal that hardly another cause could give them.
"""

from typing import NamedTuple

from pytest_dsocr.compare.readings import SURE

MOST_ODDS = 1 - SURE
"""Largest probability, in a proof, that another cause gives the same; for readings, the level of the test."""
UNTOLD = "not enough to name one"
"""Start of an explanation that names no mistake, as chance gives the same text as likely."""
AGREEING, ODDS_OF_PLACE = 0.24, 0.5
"""Probability that an unrelated mistake chooses the subject's token in one wrong place of a text, measured and at most.

Measured at first wrong places: two mistakes that leave the right text at the same token choose the same other token in
0.24 of 176,646 pairs (1,308 mistakes, pages of ``dev-3``). A proof assumes twice that, since later places depend on it.
"""


class Evidence(NamedTuple):
    """Facts about a cause."""

    untried: int
    """Number of known mistakes that were not tried."""
    same: int
    """Number of causes that give the subject's values."""
    odds: float
    """Largest probability that an unrelated cause gives these values."""
    is_chance: bool = False
    """Whether unrelated causes agree too often for a text's cause to be named."""

    @property
    def is_proof(self) -> bool:
        """Whether the one cause is proven."""
        return not self.untried and self.same == 1 and self.odds <= MOST_ODDS


def odds_of_places(places: int, tried: int, agreeing: float = ODDS_OF_PLACE) -> float:
    """Return a bound on the probability that any of the tried mistakes agrees by chance in all wrong places.

    It adds up over the mistakes, as if places were independent. It does not cover mistakes that resemble each other:
    the search does, since it has tried each of them, and they give other texts.
    """
    return min(1.0, tried * agreeing**places)


def odds_of_tensor(error: float, ordinary: float) -> float:
    """Return 0 if a tensor is as near as correct implementations are; otherwise 1, as no bound is known."""
    return 0.0 if error <= ordinary else 1.0
