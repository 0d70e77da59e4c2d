"""When a cause is proven; everything that says so asks :class:`Evidence`.

A proof is a promise: whoever reads it fixes what it names and looks no further. So it takes a search that came to its
end, one cause alone that gives what the subject gives, and so much that is equal that no other is likely to give it.
"""

from typing import NamedTuple

from pytest_dsocr.compare.readings import SURE

MOST_ODDS = 1 - SURE
"""Another cause may give the same with these odds at most; of readings it is the level of the test."""
ODDS_OF_PLACE = 0.5
"""What is assumed of one place where a text leaves the right one, and was not measured.

At least two tokens are near there, the right one and the subject's. So a mistake that has nothing to do with the
subject is taken to choose the subject's in half of the places at most.
"""


class Evidence(NamedTuple):
    """What is known of a cause."""

    untried: int
    """How many known mistakes the search did not come to."""
    same: int
    """How many causes give what the subject gives."""
    odds: float
    """How likely one that has nothing to do with it gives the same, at most."""

    @property
    def is_proof(self) -> bool:
        """Whether the one cause is proven."""
        return not self.untried and self.same == 1 and self.odds <= MOST_ODDS


def odds_of_places(places: int, tried: int) -> float:
    """Return how likely any of the mistakes that were tried agrees by chance in so many wrong places, at most.

    That is the sum over those that were tried, as if places were independent. Mistakes that are alike are not held
    apart by it, but by the search: each that it knows has been tried, and gives another text.
    """
    return min(1.0, tried * ODDS_OF_PLACE**places)


def odds_of_tensor(error: float, ordinary: float) -> float:
    """Return the same of a tensor: taken as 0 up to what correct implementations differ by, else no bound is known."""
    return 0.0 if error <= ordinary else 1.0
