"""How a run ended, in one word and one exit status, so that CI can tell a wrong model from a machine out of order.

``docs/running.md`` has the statuses of every command.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum


class Ending(StrEnum):
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


OF_PYTEST = {2: Ending.INTERRUPTED, 3: Ending.INTERNAL_ERROR, 4: Ending.REFUSED, 5: Ending.NO_TESTS}
WRONG, INTERNAL_ERROR, INFRASTRUCTURE, SLOWER = 1, 3, 10, 11
BAD_INPUT, UNDECIDED, BY_INTERRUPT = 2, 12, 130
EXIT_STATUS: Mapping[Ending, int] = {
    Ending.PASSES: 0,
    Ending.WRONG: WRONG,
    Ending.INFRASTRUCTURE: INFRASTRUCTURE,
    Ending.SLOWER: SLOWER,
    **{ending: status for status, ending in OF_PYTEST.items()},
}
"""Of ``dsocr compare``. 2 to 5 are pytest's own, and 128 + N is a signal's."""
GRAVEST_FIRST = (Ending.WRONG, Ending.INFRASTRUCTURE, Ending.SLOWER)
"""A run that could not compare everything is not called slower, which a CI may choose to let pass."""


def gravest(found: Iterable[Ending]) -> Ending:
    """Return the one that counts among those of failing tests; WRONG where there is none."""
    endings = {*found}
    return next((one for one in GRAVEST_FIRST if one in endings), Ending.WRONG)
