"""Early verdicts: the distance from a limit that noise does not reach in a few pairs of rounds.

A rank test needs a dozen pairs, because it assumes nothing about the size of noise. This rule assumes a bound. Noise
lengthens one side of a pair alone, by a factor F, with a probability of at most ``DISTURBED`` / F². Pairs are
independent, except while the host's speed differs between the sides. That difference, of
:func:`~pytest_dsocr.timing.host.speed_apart`, is added to the distance.
"""

import math

SHARE = 0.1
"""Part of a table's rate of false alarms that early verdicts may use."""
DISTURBED = 0.1
"""Highest share of pairs in which noise slows one side down considerably."""
CLOSEST = math.log(1.2)
"""Smallest distance; two processes of the same code may differ by 15 % throughout."""
FEWEST = 2
"""Fewest pairs for an early verdict."""
AGREEING, FAR = 6, math.log(2)
"""Fewest rounds of each of two runs for an early verdict, and its distance: there is no bound on what differs between
two runs."""


def distance(sizes: tuple[int, int], paired: bool, tests: int, alpha: float) -> float:
    """Return how far beyond a limit all differences have to be, as a logarithm; infinite if the rounds are too few."""
    if paired:
        return of_pairs(sizes[0], tests, alpha)
    return FAR if min(sizes) >= AGREEING else math.inf


def of_pairs(pairs: int, tests: int, alpha: float) -> float:
    """Return how far beyond its limit each of ``pairs`` has to be, as a logarithm; infinite for a single pair.

    The probabilities of a false alarm add up to at most ``SHARE * alpha`` over all numbers of pairs and all tests.

    Args:
        pairs: number of pairs so far.
        tests: number of tests of the table: quantities, each in two directions.
        alpha: rate of tables with a false alarm.
    """
    if pairs < FEWEST:
        return math.inf
    each = SHARE * alpha * 0.5 ** (pairs - 1) / tests
    return max(CLOSEST, math.log(DISTURBED / each ** (1 / pairs)) / 2)
