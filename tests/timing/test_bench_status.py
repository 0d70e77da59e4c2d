"""Status and verdict of a bench, from times and counts of both sides that are made up."""

from math import nan
from typing import Any

import pytest

from pytest_dsocr.timing import pairs as pairs_module
from pytest_dsocr.timing.bench import Bench, BenchStatus
from pytest_dsocr.timing.rounds import Round
from pytest_dsocr.timing.statistics import Judgement, TimingVerdict
from tests.timing.made import measured


def test_what_one_side_alone_has_the_time_of_is_not_compared() -> None:
    pairs = [(Round({"page": 1.0, "sam": 1.0}), Round({"page": 1.0}))] * 12
    found = pairs_module.judge_pairs(pairs, {"decode": 0.1}, 1, 1)
    expected = {"page": TimingVerdict.SAME, "sam": TimingVerdict.NOT_COMPARED, "decode": TimingVerdict.NOT_COMPARED}
    assert {one.quantity: one.pace for one in found} == expected


SAME, SLOWER, AMBIGUOUS = TimingVerdict.SAME, TimingVerdict.SLOWER, TimingVerdict.AMBIGUOUS

OTHER_WORK = "could not tell: the sides do different work"


def sides(
    *paces: TimingVerdict, operators: int = 8, tokens: int = 8, apart: str = "", is_timed: bool = True, **how: Any
) -> Bench:
    """Return two sides with these verdicts on times; A has 8 operators and 8 tokens."""
    a = measured({}, {"page.operators": 8, "tokens.output": 8})
    b = measured({}, {"page.operators": operators, "tokens.output": tokens})
    judgements = tuple(Judgement(pace, pace, nan, nan, nan, nan, nan, nan, 0, 0) for pace in paces)
    return Bench(a, b, judgements, apart, is_timed, **how)


@pytest.mark.parametrize(
    ("found", "status", "verdict"),
    [
        (sides(SAME), BenchStatus.NOT_SLOWER, "B is the same"),
        (sides(SAME, TimingVerdict.FASTER, operators=7), BenchStatus.NOT_SLOWER, "B is faster: FASTER"),
        (sides(SAME, TimingVerdict.NOT_SLOWER), BenchStatus.NOT_SLOWER, "B is not slower"),
        (sides(TimingVerdict.NOT_SLOWER, AMBIGUOUS), BenchStatus.UNDECIDED, "could not tell: AMBIGUOUS"),
        (sides(SAME, SLOWER, AMBIGUOUS), BenchStatus.SLOWER, "B is slower: SLOWER"),
        (sides(AMBIGUOUS, operators=9), BenchStatus.SLOWER, "B is slower: page.operators (counted)"),
        (sides(TimingVerdict.FASTER, AMBIGUOUS), BenchStatus.UNDECIDED, "B is faster: FASTER; could not tell: AMBIG"),
        (sides(SAME, AMBIGUOUS), BenchStatus.UNDECIDED, "could not tell: AMBIGUOUS"),
        (sides(SAME, TimingVerdict.NOT_COMPARED), BenchStatus.UNDECIDED, "could not tell: NOT-COMPARED"),
        (sides(), BenchStatus.UNDECIDED, "could not tell: no round"),
        (sides(SLOWER, operators=9, tokens=9), BenchStatus.UNDECIDED, OTHER_WORK),
        (sides(SAME, apart="another text"), BenchStatus.UNDECIDED, OTHER_WORK),
        (sides(SAME, apart="a", along=8, operators=9), BenchStatus.NOT_SLOWER, "B is the same (along A's 8 tokens)"),
        (sides(SAME, tokens=9, along=8), BenchStatus.UNDECIDED, OTHER_WORK),
        (sides(SAME, left_out=("tracing",)), BenchStatus.NOT_SLOWER, "B is the same (without tracing)"),
        (sides(is_timed=False), BenchStatus.NOT_SLOWER, "B counts no more than A"),
        (sides(operators=9, is_timed=False), BenchStatus.SLOWER, "B is slower: page.operators (counted)"),
    ],
)
def test_status_and_verdict_are_one_decision(found: Bench, status: BenchStatus, verdict: str) -> None:
    assert (found.status, found.verdict[: len(verdict)]) == (status, verdict)
