"""Logits and choices along the reference's tokens, and which flips are ties."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from pytest_dsocr.compare.signs import IN_WORDS, Reason, Sign
from pytest_dsocr.compare.tokens import (
    compare_best,
    compare_logits,
    compare_tokens,
    gap_ulps,
    is_tie,
)
from pytest_dsocr.compare.tolerances import Tolerances, tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared
from pytest_dsocr.observation.answer import ForcedStep
from pytest_dsocr.observation.observation import Best, Step

LIMITS = tolerances("float32")
ULP = 2.0**-20
"""Of 8.0 in float32."""
INF, NAN = math.inf, math.nan


def step(token: int, *best: tuple[int, float]) -> Step:
    return Step(token, Best(tuple(i for i, _ in best), tuple(logit for _, logit in best)))


def forced(theirs: Step, token: int | None = None, best: Best | None = None, **at: float) -> ForcedStep:
    """The reference's own step, with another token or best, and logits ``t3=...`` of single tokens."""
    logits = [at.get(f"t{i}", logit) for i, logit in zip(theirs.best.ids, theirs.best.logits, strict=True)]
    return ForcedStep(theirs.token if token is None else token, best or theirs.best, tuple(logits))


ONE = step(7, (7, 8.0), (3, 4.0), (9, 2.0))
TWO = step(3, (3, 8.0), (7, 7.0), (9, -6.0))


# The best first tokens.

THEIRS = Best((7, 3, 9), (8.0, 4.0, 2.0))


@pytest.mark.parametrize(
    ("ids", "logits", "shared", "error"),
    [
        ((7, 3, 9), (8.0, 4.0, 2.5), 3, 0.0625),
        ((7, 3, 9), (8.0, 3.0, 2.0), 3, 0.125),
        ((3, 7, 9), (4.0, 8.0, 2.0), 3, 0.0),
        ((7, 3, 5), (8.0, 4.0, 2.0), 2, 0.0),
        ((7, 3, 5), (8.0, 4.0, 3.0), 2, 0.0),
        ((7, 3, 5), (8.0, 4.0, 1.0), 2, 0.125),
        ((5, 3, 9), (8.0, 4.0, 2.0), 2, 0.75),
        ((1, 2, 4), (9.0, 9.0, 9.0), 0, 0.0),
        ((7, 3, 9), (-8.0, 4.0, 2.0), 3, 2.0),
        ((7, 3, 9), (NAN, 4.0, 2.0), 3, INF),
        ((7, 3, 9), (8.0, 4.0, NAN), 3, INF),
        ((7, 3, 5), (8.0, 4.0, NAN), 2, INF),
        ((1, 2, 4), (NAN, NAN, NAN), 0, INF),
        ((7, 3, 9), (INF, 4.0, 2.0), 3, INF),
        ((1, 3, 9), (INF, 4.0, 2.0), 2, INF),
    ],
)
def test_best_first_tokens(ids: tuple[int, ...], logits: tuple[float, ...], shared: int, error: float) -> None:
    found = compare_best(Best(ids, logits), THEIRS, LIMITS)
    verdict = Verdict.WRONG if error else Verdict.DRIFT
    measured = f"{shared} of the best 3 shared, relative error {error:.1e} (allowed 1e-04)"
    assert found == Comparison("prefill_best", verdict, measured, error)


def test_equal_best_match() -> None:
    found = compare_best(Best(*THEIRS), THEIRS, LIMITS)
    assert found == Comparison("prefill_best", Verdict.MATCH, "the best 3 and their logits", 0.0)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_a_reference_that_is_not_finite_is_never_inside_a_tolerance(bad: float) -> None:
    spoilt = Best((7, 3, 9), (8.0, 4.0, bad))
    assert compare_best(THEIRS, spoilt, LIMITS).verdict is Verdict.WRONG
    theirs = Step(7, spoilt)
    assert compare_logits([forced(theirs, t9=1.0)], [theirs], LIMITS).error == INF
    assert compare_logits([forced(theirs)], [theirs], LIMITS).error == INF


@pytest.mark.parametrize(("apart", "verdict"), [(0.5, Verdict.DRIFT), (0.5000001, Verdict.WRONG)])
def test_the_limit_of_logits_is_relative_to_the_largest_and_inside(apart: float, verdict: Verdict) -> None:
    """Of [3, -8] the largest is 8, so that 1/16 of it may be apart."""
    limits = Tolerances("float32", seam=0.0, logits=0.0625, ties=0, mantissa_bits=23)
    theirs = step(1, (1, 3.0), (2, -8.0))
    assert compare_best(Best((1, 2), (3.0 + apart, -8.0)), theirs.best, limits).verdict is verdict
    assert compare_logits([forced(theirs, t1=3.0 + apart)], [theirs], limits).verdict is verdict


def test_a_reference_of_zeros_is_compared_absolutely() -> None:
    theirs = step(0, (0, 0.0), (1, 0.0))
    assert compare_logits([forced(theirs, t1=0.25)], [theirs], LIMITS).error == 0.25


# Logits, teacher-forced.


def test_equal_logits_match() -> None:
    found = compare_logits([forced(ONE), forced(TWO)], [ONE, TWO], LIMITS)
    assert found == Comparison("logits", Verdict.MATCH, "those of the best tokens at 2 steps", 0.0)


@pytest.mark.parametrize(
    ("mine", "worst", "error", "first", "wrong"),
    [
        ([forced(ONE), forced(TWO, t9=-5.0)], 1, 0.125, 1, 1),
        ([forced(ONE, t7=7.0), forced(TWO, t9=-5.0)], 0, 0.125, 0, 2),
        ([forced(ONE, t3=0.0), forced(TWO, t9=6.0)], 1, 1.5, 0, 2),
        ([forced(ONE), forced(TWO, t3=NAN)], 1, INF, 1, 1),
        ([forced(ONE, t9=NAN), forced(TWO)], 0, INF, 0, 1),
        ([forced(ONE, t3=-INF), forced(TWO, t9=NAN)], 0, INF, 0, 2),
        ([forced(ONE), ForcedStep(3, TWO.best, (8.0, 7.0))], 1, INF, 1, 1),
    ],
)
def test_wrong_logits_name_the_worst_step_and_the_first(
    mine: list[ForcedStep], worst: int, error: float, first: int, wrong: int
) -> None:
    measured = f"relative error at most {error:.1e}, at step {worst} (allowed 1e-04)"
    details = (f"out of tolerance from step {first} on, at {wrong} of 2 steps",)
    signs = frozenset(((Sign.FROM_PREFILL, Sign.FROM_FIRST_STEP)[first],))
    found = compare_logits(mine, [ONE, TWO], LIMITS)
    assert found == Comparison("logits", Verdict.WRONG, measured, error, details, signs)


def test_logits_that_go_wrong_later_are_of_no_particular_step() -> None:
    assert not compare_logits([forced(ONE), forced(TWO), forced(ONE, t3=5.0)], [ONE, TWO, ONE], LIMITS).signs


def test_steps_that_say_what_the_first_did_are_told() -> None:
    still = [forced(ONE), forced(TWO, best=ONE.best, t3=4.0)]
    found = compare_logits(still, [ONE, TWO], LIMITS)
    assert Sign.STANDS_STILL in found.signs
    assert IN_WORDS[Sign.STANDS_STILL] in found.details
    moving = [forced(ONE), forced(TWO, t3=4.0)]
    alone = [forced(ONE, t3=5.0)]
    assert Sign.STANDS_STILL not in compare_logits(moving, [ONE, TWO], LIMITS).signs
    assert Sign.STANDS_STILL not in compare_logits(alone, [ONE], LIMITS).signs


def test_without_any_best_there_is_nothing_to_compare() -> None:
    nothing = Best((), ())
    for mine, theirs in ((nothing, THEIRS), (THEIRS, nothing), (nothing, nothing)):
        why = f"{len(mine.ids)} best tokens of the subject, {len(theirs.ids)} of the reference"
        assert compare_best(mine, theirs, LIMITS) == not_compared("prefill_best", Reason.INCOMPLETE, why)
    empty = Step(7, nothing)
    assert compare_logits([ForcedStep(7, ONE.best, ())], [empty], LIMITS).verdict is Verdict.WRONG
    assert compare_tokens([ForcedStep(3, ONE.best, ())], [empty], LIMITS).verdict is Verdict.WRONG


def test_a_best_that_is_not_a_number_is_wrong_even_where_both_sides_have_it() -> None:
    spoilt = Best((7, 3), (NAN, 4.0))
    assert compare_best(spoilt, spoilt, LIMITS).verdict is Verdict.WRONG
    step_of_it = Step(7, spoilt)
    assert compare_logits([forced(step_of_it)], [step_of_it], LIMITS).verdict is Verdict.WRONG


def test_logits_inside_the_limit_drift() -> None:
    found = compare_logits([forced(ONE, t9=2.0 + 2**-14)], [ONE], LIMITS)
    assert (found.verdict, found.error) == (Verdict.DRIFT, 2**-17)


NOTHING: Sequence[tuple[list[ForcedStep], list[Step], str]] = [
    ([], [], "0 steps of the subject, 0 of the reference"),
    ([forced(ONE)], [], "1 steps of the subject, 0 of the reference"),
    ([], [ONE], "0 steps of the subject, 1 of the reference"),
    ([forced(ONE)], [ONE, TWO], "1 steps of the subject, 2 of the reference"),
    ([forced(ONE), forced(TWO)], [ONE], "2 steps of the subject, 1 of the reference"),
]


@pytest.mark.parametrize(("mine", "theirs", "why"), NOTHING)
def test_steps_that_cannot_be_paired_are_not_compared(mine: list[ForcedStep], theirs: list[Step], why: str) -> None:
    assert compare_logits(mine, theirs, LIMITS) == not_compared("logits", Reason.INCOMPLETE, why)
    assert compare_tokens(mine, theirs, LIMITS) == not_compared("tokens", Reason.INCOMPLETE, why)


# Choices, teacher-forced.


def close(apart_ulps: float) -> Step:
    """A step whose best two are so many ULP apart."""
    return step(7, (7, 8.0), (3, 8.0 - apart_ulps * ULP), (9, 2.0))


def test_equal_choices_match() -> None:
    found = compare_tokens([forced(ONE), forced(TWO)], [ONE, TWO], LIMITS)
    assert found == Comparison("tokens", Verdict.MATCH, "all 2")


def test_another_choice_is_wrong() -> None:
    found = compare_tokens([forced(ONE), forced(TWO, 7)], [ONE, TWO], LIMITS)
    assert found == Comparison(
        "tokens",
        Verdict.WRONG,
        "1 of 2 equal, 0 ties; first differing step 1",
        None,
        (
            "step 1: token 7, the reference has 3; ULP of float32 between them: 1048576 and 1048576 "
            "(reference, subject; a tie: up to 64)",
            IN_WORDS[Sign.NOT_ITS_BEST],
        ),
        frozenset((Sign.NOT_ITS_BEST,)),
    )


def test_a_choice_between_equals_is_a_tie() -> None:
    theirs = close(64)
    found = compare_tokens([forced(theirs, 3, Best((3, 7), (8.0, 8.0 - 5 * ULP))), forced(TWO)], [theirs, TWO], LIMITS)
    assert found == Comparison(
        "tokens",
        Verdict.TIE_FLIP,
        "1 of 2 equal, 1 ties; first differing step 0",
        None,
        (
            "step 0: token 3, the reference has 7; ULP of float32 between them: 64 and 5 "
            "(reference, subject; a tie: up to 64)",
        ),
    )


@pytest.mark.parametrize(
    ("mine_apart", "theirs_apart", "tie"),
    [(0, 0, True), (64, 64, True), (1, 64, True), (0, 65, False), (65, 0, False), (65, 65, False), (64.5, 64, False)],
)
def test_a_tie_ends_one_ulp_beyond_the_limit_on_either_side(mine_apart: float, theirs_apart: float, tie: bool) -> None:
    mine = Best((3, 7, 9), (8.0, 8.0 - mine_apart * ULP, 2.0))
    assert is_tie(ForcedStep(3, mine, ()), close(theirs_apart), LIMITS) is tie


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (Best((3, 9), (8.0, 8.0)), close(0)),
        (Best((3, 7), (8.0, 8.0)), step(7, (7, 8.0), (9, 8.0))),
        (Best((3, 9), (8.0, 8.0)), step(7, (7, 8.0), (9, 8.0))),
        (Best((3, 7), (NAN, NAN)), close(0)),
        (Best((3, 7), (INF, INF)), close(0)),
        (Best((3, 7), (8.0, 8.0)), step(7, (7, NAN), (3, NAN))),
    ],
    ids=["subject lacks one", "reference lacks one", "both lack one", "NaN", "infinite", "reference NaN"],
)
def test_what_cannot_be_measured_is_no_tie(mine: Best, theirs: Step) -> None:
    assert not is_tie(ForcedStep(3, mine, ()), theirs, LIMITS)
    [line] = compare_tokens([ForcedStep(3, mine, ())], [theirs], LIMITS).details
    assert "unknown" in line


@pytest.mark.parametrize(("dtype", "ulps"), [("float32", 2.0**20), ("float16", 128.0), ("bfloat16", 16.0)])
def test_a_gap_is_counted_in_ulps_of_the_best(dtype: str, ulps: float) -> None:
    best = Best((5, 7, 3), (-9.0, -10.0, -11.0))
    assert gap_ulps(best, 7, 3, tolerances(dtype)) == gap_ulps(best, 3, 7, tolerances(dtype)) == ulps
    assert gap_ulps(best, 5, 3, tolerances(dtype)) == 2 * ulps
    assert gap_ulps(best, 5, 6, tolerances(dtype)) == gap_ulps(best, 6, 5, tolerances(dtype)) == INF


def test_a_tie_below_a_banned_token_is_measured_between_the_two_chosen() -> None:
    """Both sides see token 7 far ahead, and both may not say it."""
    theirs = step(3, (7, 8.0), (3, 4.0), (9, 4.0 - ULP))
    mine = Best((7, 9, 3), (8.0, 4.0, 4.0 - 2 * ULP))
    assert compare_tokens([ForcedStep(9, mine, ())], [theirs], LIMITS).verdict is Verdict.TIE_FLIP


def test_a_banned_token_that_the_subject_says_all_the_same_is_wrong() -> None:
    theirs = step(3, (7, 8.0), (3, 4.0), (9, 2.0))
    found = compare_tokens([forced(theirs, 7)], [theirs], LIMITS)
    assert found.verdict is Verdict.WRONG
    assert found.signs == {Sign.SAID_FORBIDDEN}
    assert found.details[1:] == (IN_WORDS[Sign.SAID_FORBIDDEN],)


def test_another_best_than_the_reference_says_nothing_of_rules() -> None:
    own_best = forced(ONE, 3, Best((3, 7), (8.0, 4.0)))
    assert not compare_tokens([own_best], [ONE], LIMITS).signs
    both_forbidden = forced(step(3, (7, 8.0), (3, 4.0), (9, 2.0)), 9)
    assert not compare_tokens([both_forbidden], [step(3, (7, 8.0), (3, 4.0), (9, 2.0))], LIMITS).signs


def test_a_wrong_choice_among_ties_is_wrong_and_shown_instead_of_them() -> None:
    steps = [close(1), TWO, close(1), ONE]
    mine = [forced(steps[0], 3), forced(TWO, 9), forced(steps[2], 3), forced(ONE)]
    found = compare_tokens(mine, steps, LIMITS)
    assert found.verdict is Verdict.WRONG
    assert found.measured == "1 of 4 equal, 2 ties; first differing step 0"
    assert [line.split(",")[0] for line in found.details[:-1]] == ["step 1: token 9"]
    assert found.signs == {Sign.NOT_ITS_BEST}


def test_a_rule_is_seen_in_what_is_wrong_and_not_in_a_tie() -> None:
    """At the tie the subject says its second best; at the wrong step both say their best."""
    steps = [close(1), TWO]
    mine = [forced(steps[0], 3), forced(TWO, 9, Best((9, 3), (8.0, 7.0)))]
    assert not compare_tokens(mine, steps, LIMITS).signs


def test_five_steps_are_shown_at_most() -> None:
    found = compare_tokens([forced(ONE, 9)] * 8, [ONE] * 8, LIMITS)
    assert found.measured == "0 of 8 equal, 0 ties; first differing step 0"
    assert [line.split(":")[0] for line in found.details[:-1]] == [f"step {k}" for k in range(5)]


def test_a_token_that_is_none_of_the_subjects_best_may_be_a_tie_by_its_logit_of_the_references() -> None:
    """Seen on an H200: of five coordinates within 3 ULP the subject's best five lacked the reference's choice."""
    theirs = Step(997, Best((1011, 997, 1012, 1017, 996), (14.1875, 14.1875, 14.0625, 14.0625, 14.0)))
    best = Best((1017, 1011, 1018, 1012, 1019), (14.198, 14.185, 14.120, 14.084, 14.057))
    near, far = (14.185, 14.05, 14.084, 14.198, 14.0), (14.185, 12.0, 14.084, 14.198, 14.0)
    assert is_tie(ForcedStep(1017, best, near), theirs, tolerances("bfloat16"))
    assert not is_tie(ForcedStep(1017, best, far), theirs, tolerances("bfloat16"))
    assert not is_tie(ForcedStep(1017, best, ()), theirs, tolerances("bfloat16"))
