"""How a run ended, in one word and one exit status, so that CI can tell a wrong model from a machine out of order.

The exit statuses of all commands are here; ``docs/running.md`` is held to them.
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
OF_ALL: Mapping[int, str] = {
    0: "it was done",
    BAD_INPUT: "a bad command line, or bad input",
    INTERNAL_ERROR: "an internal error, with its traceback",
    INFRASTRUCTURE: "the machine: no usable reference, page, baseline or weights, no GPU or a lost one, "
    "a server that is not there or has no memory, no memory, a full disk",
    BY_INTERRUPT: "interrupted",
}
"""Of every command, as far as it says nothing else of a status."""
_OF_RUN: Mapping[int, str] = {
    0: "the run came to its end and passed",
    WRONG: "the subject is wrong or raised, a test failed for any other reason, or pytest ended without a finished "
    "result",
    SLOWER: "everything was compared and nothing is wrong, but times or counts of work are worse than the baseline's",
    BAD_INPUT: "a bad command line, the output folder cannot be written, or the run was interrupted",
    EXIT_STATUS[Ending.REFUSED]: "as pytest: a usage error",
    EXIT_STATUS[Ending.NO_TESTS]: "as pytest: no tests",
}
OWN: Mapping[str, Mapping[int, str]] = {
    "compare": _OF_RUN,
    "merge": _OF_RUN,
    "diff": {
        0: "nothing is worse",
        WRONG: "something became wrong",
        SLOWER: "something became slower",
        UNDECIDED: "not comparable: another key, checkpoint or version of the vendor's files, a run that is unfinished "
        "or damaged, no case in common; or something of the old run is not compared any more",
    },
    "bench": {
        0: "every stage is the same or faster",
        1: "a stage is slower, or something that is counted is worse",
        2: "it could not be told: something is AMBIGUOUS, was not timed on both sides, or the two do not read the same",
        3: "a side could not be run; the message says why, with the end of what it printed",
    },
    "doctor": {1: "something that is needed is not there"},
    "vendor inspect": {1: "the files have changed"},
    "watch-vendor": {1: "something has changed"},
}
"""Of a command, where that says more than :data:`OF_ALL`, or something else."""
GRAVEST_FIRST = (Ending.WRONG, Ending.INFRASTRUCTURE, Ending.SLOWER)
"""A run that could not compare everything is not called slower, which a CI may choose to let pass."""


def gravest(found: Iterable[Ending]) -> Ending:
    """Give the one that counts among those of failing tests; WRONG where there is none."""
    endings = {*found}
    return next((one for one in GRAVEST_FIRST if one in endings), Ending.WRONG)
