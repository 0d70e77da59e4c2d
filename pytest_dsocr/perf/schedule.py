"""How many rounds are taken, in which order, and when they are looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_dsocr.perf.judgement import Judgement
from pytest_dsocr.perf.statistics import ALPHA, Sides, fewest_rounds, judge

LOOKS = (12, 24, 48)
"""After how many pairs of rounds they are judged; there are no more after the last."""

ALONE = 8
"""Rounds of a run that is judged against nothing; enough to compare its own late steps with its early ones."""
TOKENS = 24
"""Ceiling of the output of a timed page, where none is named: eight steps at each end, and some between."""
MOST_TAKEN = 2
"""Rounds that are taken at most for each that is wanted, where some are spoilt."""


def looks_for(quantities: int, alpha: float = ALPHA) -> tuple[int, ...]:
    """Give the looks at a table of so many quantities: none before the test can find anything."""
    fewest = max(fewest_rounds(max(quantities, 1), alpha, len(LOOKS), paired=True), LOOKS[0])
    return (fewest + fewest % 2, *LOOKS[1:])


def looks_at(quantities: int, most_rounds: int) -> Sequence[int]:
    """Give after how many pairs of rounds a table of so many quantities is judged."""
    return (*(look for look in looks_for(quantities) if look < most_rounds), most_rounds)


def is_over(judgements: Sequence[Judgement]) -> bool:
    """Say whether a table is settled, or more rounds settle nothing of what is left; not before its first look."""
    return bool(judgements) and all(one.settled or one.reason for one in judgements)


def next_rounds(judgements: Sequence[Judgement], taken: int, looks: Sequence[int] = LOOKS) -> int:
    """Give how many pairs to take until the next look; none after the last one, or where more settle nothing.

    Args:
        judgements: of the look that was had; empty before the first.
        taken: the pairs that are used, without spoilt ones. Judging them is a look only where they are one of
            ``looks``; otherwise take more first.
        looks: after how many pairs they are judged.
    """
    if is_over(judgements):
        return 0
    return next((look - taken for look in looks if look > taken), 0)


def order(pair: int) -> tuple[int, int]:
    """Give which side (0 or 1) reads first in this pair of rounds, and which reads then.

    Pairs turn about (ABBA), so that over two of them a machine that gets steadily slower favours no side.
    """
    return (1, 0) if pair % 2 else (0, 1)


def look_at(
    times: Mapping[str, Sides],
    limits: Mapping[str, float],
    looks: Sequence[int],
    *,
    alpha: float = ALPHA,
    spread: Mapping[str, float] | None = None,
) -> list[Judgement]:
    """Judge pairs that were taken before as if they came one look after the other; the verdicts of the last look."""
    judgements: list[Judgement] = []
    taken = 0
    while more := next_rounds(judgements, taken, looks):
        taken += more
        so_far = {quantity: (before[:taken], after[:taken]) for quantity, (before, after) in times.items()}
        look = looks.index(taken) + 1
        judgements = judge(so_far, limits, paired=True, alpha=alpha, look=look, looks=len(looks), spread=spread)
    return judgements
