"""The exit status of ``dsocr bench`` and its verdict say the same, whatever was judged, counted and read."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from itertools import chain, combinations
from math import nan

import pytest

from pytest_dsocr.perf.bench import Bench, Status
from pytest_dsocr.perf.judgement import Judgement, Pace
from tests.perf.made import measured

SUBSETS = [{*chosen} for chosen in chain.from_iterable(combinations(Pace, size) for size in range(len(Pace) + 1))]
BEFORE = {"page.operators": 8, "tokens.output": 8}
BEGINS = {
    Status.NOT_SLOWER: ("B is the same", "B is faster: FASTER"),
    Status.SLOWER: ("B is slower: ",),
    Status.UNTOLD: ("could not tell: ",),
}


def expected(paces: AbstractSet[Pace], operators: int) -> Status:
    if operators > BEFORE["page.operators"] or Pace.SLOWER in paces:
        return Status.SLOWER
    return Status.UNTOLD if not paces or paces & {Pace.AMBIGUOUS, Pace.NOT_COMPARED} else Status.NOT_SLOWER


@pytest.mark.parametrize("apart", ["", "they read another text"])
@pytest.mark.parametrize("tokens", [8, 9])
@pytest.mark.parametrize("operators", [7, 8, 9])
def test_status_and_verdict_are_one_decision(operators: int, tokens: int, apart: str) -> None:
    a, b = measured({}, BEFORE), measured({}, {"page.operators": operators, "tokens.output": tokens})
    is_same_work = not apart and tokens == BEFORE["tokens.output"]
    for paces in SUBSETS:
        found = Bench(a, b, tuple(Judgement(pace, pace, nan, nan, nan, nan, nan, nan, 0, 0) for pace in paces), apart)
        status = expected(paces, operators) if is_same_work else Status.UNTOLD
        assert (found.status, found.verdict.startswith(BEGINS[status])) == (status, True), paces
