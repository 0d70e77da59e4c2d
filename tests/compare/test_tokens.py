"""Logits and choices along the reference's tokens, and which flips are ties."""

import math

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.compare.tokens import compare_best, compare_logits, compare_tokens, is_tie
from pytest_dsocr.compare.tolerances import Tolerances, tolerances
from pytest_dsocr.compare.verdict import Reason, Symptom, Verdict
from pytest_dsocr.records.reference_result import Best, Step
from pytest_dsocr.records.subject_result import ForcedStep
from tests.compare.made import shown

LIMITS = tolerances("float32")
ULP = 2.0**-20
"""Distance from 8.0 to the next float32 number."""
INF, NAN = math.inf, math.nan


def step(token: int, *best: tuple[int, float]) -> Step:
    return Step(token, Best(tuple(i for i, _ in best), tuple(logit for _, logit in best)))


def forced(expected: Step, token: int | None = None, best: Best | None = None, **at: float) -> ForcedStep:
    """Return the reference's own step, with another token or best, and logits ``t3=...`` of single tokens."""
    logits = [at.get(f"t{i}", logit) for i, logit in zip(expected.best.ids, expected.best.logits, strict=True)]
    return ForcedStep(expected.token if token is None else token, best or expected.best, tuple(logits))


def close(apart_ulps: float) -> Step:
    """Return a step with its best two ``apart_ulps`` apart."""
    return step(7, (7, 8.0), (3, 8.0 - apart_ulps * ULP), (9, 2.0))


ONE = step(7, (7, 8.0), (3, 4.0), (9, 2.0))
TWO = step(3, (3, 8.0), (7, 7.0), (9, -6.0))
BANNED = step(3, (7, 8.0), (3, 4.0), (9, 4.0 - ULP))
"""Both sides see token 7 far ahead, and neither may say it."""
FLAT = step(7, (7, 8.0), (3, 8.0 - 5 * ULP))
"""Step with only two known tokens; others may be as near."""
BEST = Best((7, 3, 9), (8.0, 4.0, 2.0))
NOTHING = Best((), ())


@pytest.mark.parametrize(
    ("ids", "logits", "error"),
    [
        ((7, 3, 9), (8.0, 4.0, 2.5), 0.0625),
        ((3, 7, 9), (4.0, 8.0, 2.0), 0.0),
        ((7, 3, 5), (8.0, 4.0, 3.0), 0.0),
        ((7, 3, 5), (8.0, 4.0, 1.0), 0.125),
        ((5, 3, 9), (8.0, 4.0, 2.0), 0.75),
        ((1, 2, 4), (9.0, 9.0, 9.0), 0.0),
        ((7, 3, 9), (-8.0, 4.0, 2.0), 2.0),
        ((7, 3, 9), (NAN, 4.0, 2.0), INF),
        ((7, 3, 5), (8.0, 4.0, NAN), INF),
        ((1, 3, 9), (INF, 4.0, 2.0), INF),
    ],
)
def test_a_token_that_is_not_among_the_best_has_at_most_the_last_ones_logit(
    ids: tuple[int, ...], logits: tuple[float, ...], error: float
) -> None:
    found = compare_best(Best(ids, logits), BEST, LIMITS)
    assert (found.verdict, found.error) == (Verdict.WRONG if error else Verdict.DRIFT, error)
    assert compare_best(Best(*BEST), BEST, LIMITS).verdict is Verdict.MATCH


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_reference_that_is_not_finite_is_never_inside_a_tolerance(bad: float) -> None:
    spoilt = Best((7, 3, 9), (8.0, 4.0, bad))
    expected = Step(7, spoilt)
    assert compare_best(BEST, spoilt, LIMITS).verdict is compare_best(spoilt, spoilt, LIMITS).verdict is Verdict.WRONG
    for one in (forced(expected, t9=1.0), forced(expected)):
        assert compare_logits([one], [expected], LIMITS).error == INF


@pytest.mark.parametrize(("apart", "verdict"), [(0.5, Verdict.DRIFT), (0.5000001, Verdict.WRONG)])
def test_the_limit_of_logits_is_relative_to_the_largest_and_inside(apart: float, verdict: Verdict) -> None:
    """The largest of [3, -8] is 8, so 0.5 is allowed; the limit is absolute for zeros."""
    limits = Tolerances("float32", seam=0.0, logits=0.0625, ties=0, mantissa_bits=23)
    expected, zeros = step(1, (1, 3.0), (2, -8.0)), step(0, (0, 0.0), (1, 0.0))
    assert compare_best(Best((1, 2), (3.0 + apart, -8.0)), expected.best, limits).verdict is verdict
    assert compare_logits([forced(expected, t1=3.0 + apart)], [expected], limits).verdict is verdict
    assert compare_logits([forced(zeros, t1=0.25)], [zeros], LIMITS).error == 0.25


LOGITS = {
    "equal": [forced(ONE), forced(TWO)],
    "inside": [forced(ONE, t9=2.0 + 2**-14), forced(TWO)],
    "second step": [forced(ONE), forced(TWO, t9=-5.0)],
    "both steps": [forced(ONE, t3=0.0), forced(TWO, t9=6.0)],
    "a NaN": [forced(ONE), forced(TWO, t3=NAN)],
    "a NaN at the first": [forced(ONE, t3=-INF), forced(TWO, t9=NAN)],
    "too few logits": [forced(ONE), ForcedStep(3, TWO.best, (8.0, 7.0))],
    "stands still": [forced(ONE), forced(TWO, best=ONE.best, t3=4.0)],
}
CHOICES = {
    "equal": ([forced(ONE), forced(TWO)], [ONE, TWO]),
    "another": ([forced(ONE), forced(TWO, 7)], [ONE, TWO]),
    "a tie": ([forced(close(64), 3, Best((3, 7), (8.0, 8.0 - 5 * ULP))), forced(TWO)], [close(64), TWO]),
    "a tie that the reference did not keep": ([forced(FLAT, 9, Best((9, 7), (8.0, 8.0)))], [FLAT]),
    "not kept, and no tie to the subject": ([forced(FLAT, 9, Best((9, 7), (9.0, 8.0)))], [FLAT]),
    "not kept, and behind what is no tie": ([forced(ONE, 5, Best((5, 7), (8.0, 8.0)))], [ONE]),
    "not kept, and other logits": ([forced(FLAT, 9, Best((9, 7), (8.0, 8.0)), t3=5.0)], [FLAT]),
    "a tie below a banned token": ([ForcedStep(9, Best((7, 9, 3), (8.0, 4.0, 4.0 - 2 * ULP)), ())], [BANNED]),
    "a banned token said": ([forced(BANNED, 7)], [BANNED]),
    "another best": ([forced(ONE, 3, Best((3, 7), (8.0, 4.0)))], [ONE]),
    "wrong among ties": ([forced(close(1), 3), forced(TWO, 9), forced(close(1), 3)], [close(1), TWO, close(1)]),
    "another best, after a tie": ([forced(close(1), 3), forced(TWO, 9, Best((9, 3), (8.0, 7.0)))], [close(1), TWO]),
    "eight": ([forced(ONE, 9)] * 8, [ONE] * 8),
    "no best": ([ForcedStep(3, ONE.best, ())], [Step(7, NOTHING)]),
}


def test_what_is_said_of_logits_and_choices(snapshot: SnapshotAssertion) -> None:
    logits = {name: shown(compare_logits(actual, [ONE, TWO], LIMITS)) for name, actual in LOGITS.items()}
    choices = {name: shown(compare_tokens(*sides, LIMITS)) for name, sides in CHOICES.items()}
    assert {
        "logits": logits,
        "tokens": choices,
        "best": shown(compare_best(Best((7, 5), (8.0, 4.0)), BEST, LIMITS)),
    } == snapshot


def test_logits_that_go_wrong_later_or_at_one_step_alone_stand_still_nowhere() -> None:
    for actual, expected in (
        ([forced(ONE), forced(TWO), forced(ONE, t3=5.0)], [ONE, TWO, ONE]),
        ([forced(ONE, t3=5.0)], [ONE]),
    ):
        assert Symptom.STANDS_STILL not in compare_logits(actual, expected, LIMITS).signs  # fmt: skip


def test_without_any_best_there_is_nothing_to_compare() -> None:
    for actual, expected in ((NOTHING, BEST), (BEST, NOTHING), (NOTHING, NOTHING)):
        assert compare_best(actual, expected, LIMITS).reason is Reason.INCOMPLETE
    assert compare_logits([ForcedStep(7, ONE.best, ())], [Step(7, NOTHING)], LIMITS).verdict is Verdict.WRONG


@pytest.mark.parametrize(
    ("actual_apart", "expected_apart", "tie"),
    [(0, 0, True), (64, 64, True), (0, 65, False), (65, 0, False), (64.5, 64, False)],
)
def test_a_tie_ends_one_ulp_beyond_the_limit_on_either_side(
    actual_apart: float, expected_apart: float, tie: bool
) -> None:
    actual = Best((3, 7, 9), (8.0, 8.0 - actual_apart * ULP, 2.0))
    assert is_tie(ForcedStep(3, actual, ()), close(expected_apart), LIMITS) is tie


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (Best((3, 9), (8.0, 8.0)), close(0)),
        (Best((3, 7), (8.0, 8.0)), step(7, (7, 8.0), (9, 8.0))),
        (Best((3, 7), (NAN, NAN)), close(0)),
        (Best((3, 7), (INF, INF)), close(0)),
        (Best((3, 7), (8.0, 8.0)), step(7, (7, NAN), (3, NAN))),
    ],
    ids=["subject lacks one", "reference lacks one", "NaN", "infinite", "reference NaN"],
)
def test_what_cannot_be_measured_is_no_tie(actual: Best, expected: Step) -> None:
    assert not is_tie(ForcedStep(3, actual, ()), expected, LIMITS)


def test_a_token_that_is_none_of_the_subjects_best_may_be_a_tie_by_its_logit_of_the_references() -> None:
    """Seen on an H200: of five coordinates within 3 ULP the subject's best five lacked the reference's choice."""
    expected = Step(997, Best((1011, 997, 1012, 1017, 996), (14.1875, 14.1875, 14.0625, 14.0625, 14.0)))
    best = Best((1017, 1011, 1018, 1012, 1019), (14.198, 14.185, 14.120, 14.084, 14.057))
    near, far = (14.185, 14.05, 14.084, 14.198, 14.0), (14.185, 12.0, 14.084, 14.198, 14.0)
    for logits, tie in ((near, True), (far, False), ((), False)):
        assert is_tie(ForcedStep(1017, best, logits), expected, tolerances("bfloat16")) is tie
