"""How a run ended, in one word and one exit status, so that CI can tell a wrong model from a machine out of order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum


class Ended(StrEnum):
    """How a run or one of its tests ended; ``ended_as`` in ``dsocr.json``."""

    PASSES = "passes"
    WRONG = "wrong"
    """The subject is wrong, raised, or whatever else made a test fail for which no other word is certain."""
    INFRASTRUCTURE = "infrastructure"
    """Nothing wrong was seen, and not all was compared, for the machine lacks or lost what is needed."""
    SLOWER = "slower"
    """Everything was compared and nothing is wrong, but times or counts of work are worse than the baseline's."""
    INTERRUPTED = "interrupted"
    INTERNAL_ERROR = "internal error"
    REFUSED = "refused"
    NO_TESTS = "no tests"


OF_PYTEST: Mapping[int, Ended] = {
    2: Ended.INTERRUPTED,
    3: Ended.INTERNAL_ERROR,
    4: Ended.REFUSED,
    5: Ended.NO_TESTS,
}
EXIT_STATUS: Mapping[Ended, int] = {
    Ended.PASSES: 0,
    Ended.WRONG: 1,
    Ended.INFRASTRUCTURE: 10,
    Ended.SLOWER: 11,
    **{ended: status for status, ended in OF_PYTEST.items()},
}
"""Of ``dsocr compare``. 2 to 5 are pytest's own, and 128 + N is a signal's."""
GRAVEST_FIRST = (Ended.WRONG, Ended.INFRASTRUCTURE, Ended.SLOWER)
"""A run that could not compare everything is not called slower, which a CI may choose to let pass."""


def gravest(found: Iterable[Ended]) -> Ended:
    """Give the one that counts among those of failing tests; WRONG where there is none."""
    by_gravity = [one for one in GRAVEST_FIRST if one in {*found}]
    return next(iter(by_gravity), Ended.WRONG)
