"""Compare greedy tokens, step by step along the reference's own output."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Reason, Symptom, Verdict, not_compared
from pytest_dsocr.describe.error_digits import digits
from pytest_dsocr.records.reference_result import Best, Step
from pytest_dsocr.records.subject_result import NO_CHOICE, ForcedStep

SHOWN_STEPS = 5
BY_FIRST_STEP = (Symptom.FROM_PREFILL, Symptom.FROM_FIRST_STEP)


def compare_best(actual: Best, expected: Best, limits: Tolerances) -> Comparison:
    """Compare the best first tokens. A token that is not among the subject's best has at most the last one's logit."""
    if not actual.ids or not expected.ids:
        measured = f"{len(actual.ids)} best tokens of the subject, {len(expected.ids)} of the reference"
        return not_compared("prefill_best", Reason.INCOMPLETE, measured)
    own, bound = dict(zip(actual.ids, actual.logits, strict=True)), actual.logits[-1]
    apart = [
        abs(own[token] - logit) if token in own else max(0.0, logit - bound)
        for token, logit in zip(expected.ids, expected.logits, strict=True)
    ]
    error = _relative(apart, actual.logits, expected)
    if error == 0.0 and actual == expected:
        return Comparison(
            "prefill_best", Verdict.MATCH, f"the best {len(expected.ids)} and their logits", 0.0, allowed=limits.logits
        )
    shared = sum(token in own for token in expected.ids)
    verdict = Verdict.DRIFT if error <= limits.logits else Verdict.WRONG
    measured = (
        f"{shared} of the best {len(expected.ids)} shared, relative error {error:.1e} (allowed {limits.logits:.0e})"
    )
    return Comparison("prefill_best", verdict, measured, error, allowed=limits.logits)


def compare_logits(forced: Sequence[ForcedStep], expected: Sequence[Step], limits: Tolerances) -> Comparison:
    """Compare the logits of the reference's best tokens at every step, teacher-forced."""
    if not expected or len(forced) != len(expected):
        return not_compared("logits", Reason.INCOMPLETE, _steps(forced, expected))
    errors = logit_errors(forced, expected)
    error = max(errors)
    kept: dict[str, Any] = {"allowed": limits.logits, "along": digits(errors)}
    if error == 0.0:
        return Comparison("logits", Verdict.MATCH, f"those of the best tokens at {len(expected)} steps", 0.0, **kept)
    measured = f"relative error at most {error:.1e}, at step {errors.index(error)} (allowed {limits.logits:.0e})"
    beyond = [k for k, one in enumerate(errors) if not one <= limits.logits]
    if not beyond:
        return Comparison("logits", Verdict.DRIFT, measured, error, **kept)
    if spoilt := forced[beyond[0]].not_finite:
        measured = f"step {beyond[0]}: {spoilt}; the reference is finite"
    signs = tuple(_logit_signs(forced, beyond[0]))
    first = f"out of tolerance from step {beyond[0]} on, at {len(beyond)} of {len(errors)} steps"
    details = (first, *(sign.sentence for sign in signs if sign.sentence))
    return Comparison("logits", Verdict.WRONG, measured, error, details, frozenset(signs), **kept)


def logit_errors(forced: Sequence[ForcedStep], expected: Sequence[Step]) -> list[float]:
    """Return the relative error of each step's logits."""
    return [_logit_error(actual, step) for actual, step in zip(forced, expected, strict=False)]


def _steps(forced: Sequence[ForcedStep], expected: Sequence[Step]) -> str:
    return f"{len(forced)} steps of the subject, {len(expected)} of the reference"


def _logit_signs(forced: Sequence[ForcedStep], first: int) -> Iterator[Symptom]:
    """Yield the signs of logits that are out of tolerance from step ``first`` on; those of step 0 are prefill's."""
    if first < len(BY_FIRST_STEP):
        yield BY_FIRST_STEP[first]
    if forced[first].not_finite:
        yield Symptom.NOT_FINITE
    if len(forced) > 1 and len({actual.best for actual in forced}) == 1:
        yield Symptom.STANDS_STILL


def compare_tokens(forced: Sequence[ForcedStep], expected: Sequence[Step], limits: Tolerances) -> Comparison:
    """Compare the choice at every step, teacher-forced: MATCH, TIE-FLIP if all that differ are ties, or WRONG."""
    if not expected or len(forced) != len(expected):
        return not_compared("tokens", Reason.INCOMPLETE, _steps(forced, expected))
    differing = [k for k, (actual, step) in enumerate(zip(forced, expected, strict=True)) if actual.token != step.token]
    if not differing:
        return Comparison("tokens", Verdict.MATCH, f"all {len(expected)}")
    wrong = [k for k in differing if not is_tie(forced[k], expected[k], limits)]
    verdict = Verdict.WRONG if wrong else Verdict.TIE_FLIP
    measured = f"{len(expected) - len(differing)} of {len(expected)} equal, {len(differing) - len(wrong)} ties"
    details = [_described(k, forced[k], expected[k], limits) for k in (wrong or differing)[:SHOWN_STEPS]]
    signs = _rule(forced[wrong[0]], expected[wrong[0]]) if wrong else frozenset()
    details += [sign.sentence for sign in signs]
    measured += f"; first differing step {differing[0]}"
    return Comparison("tokens", verdict, measured, None, tuple(details), signs)


def does_not_end(tokens: Comparison) -> Comparison:
    """Return WRONG for equal tokens after which the subject's own policy continues; keep any other comparison."""
    if tokens.verdict is not Verdict.MATCH:
        return tokens
    signs = frozenset((Symptom.NO_END,))
    measured = f"{tokens.measured}, but by the subject's policy they are not the whole output"
    return replace(tokens, verdict=Verdict.WRONG, measured=measured, details=(Symptom.NO_END.sentence,), signs=signs)


def is_tie(actual: ForcedStep, expected: Step, limits: Tolerances) -> bool:
    """Return whether the two tokens are equal on both sides, up to rounding: neither side's gap exceeds the limit.

    Both sides need a logit of the reference's token. The subject's token may be one that the reference did not keep; it
    then counts as the reference's last, if the logits of the kept ones agree.
    """
    own = gap_ulps(actual.at_hand(expected), actual.token, expected.token, limits)
    return own <= limits.ties and _gap_of_reference(actual, expected, limits) <= limits.ties


def _gap_of_reference(actual: ForcedStep, expected: Step, limits: Tolerances) -> float:
    """Return the reference's gap between the two tokens, or its lower bound."""
    kept = actual.token in expected.best.ids or not _logit_error(actual, expected) <= limits.logits
    return gap_ulps(expected.best, actual.token if kept else expected.best.ids[-1], expected.token, limits)


def gap_ulps(best: Best, a: int, b: int, limits: Tolerances) -> float:
    """Return the gap between two tokens' logits, in ULP of the best; infinite if one is not among ``best``."""
    if a not in best.ids or b not in best.ids:
        return math.inf
    apart = best.logits[best.ids.index(a)] - best.logits[best.ids.index(b)]
    return abs(apart) / limits.ulp(best.logits[0])


def _logit_error(actual: ForcedStep, expected: Step) -> float:
    if actual.not_finite or len(actual.at_reference) != len(expected.best.logits):
        return math.inf
    apart = [abs(a - b) for a, b in zip(actual.at_reference, expected.best.logits, strict=True)]
    return _relative(apart, actual.at_reference, expected.best)


def _relative(apart: Sequence[float], actual: Sequence[float], expected: Best) -> float:
    """Return the largest difference over the largest logit; infinite if a side has a NaN or infinity, or no logit."""
    if not apart or not all(map(math.isfinite, (*actual, *expected.logits))):
        return math.inf
    return max(apart) / (max(map(abs, expected.logits)) or 1.0)


def _described(k: int, actual: ForcedStep, expected: Step, limits: Tolerances) -> str:
    if actual.token == NO_CHOICE:
        return f"step {k}: no choice, because its logits have NaN or infinity; the reference has {expected.token}"
    own = gap_ulps(actual.at_hand(expected), actual.token, expected.token, limits)
    gaps = (_gap_of_reference(actual, expected, limits), own)
    apart = " and ".join(f"{gap:.0f}" if gap < math.inf else "unknown" for gap in gaps)
    apart = apart if actual.token in expected.best.ids or gaps[0] == math.inf else f"at least {apart}"
    return (
        f"step {k}: token {actual.token}, the reference has {expected.token}; ULP of {limits.dtype} between them: "
        f"{apart} (reference, subject; a tie: up to {limits.ties})"
    )


def _rule(actual: ForcedStep, expected: Step) -> frozenset[Symptom]:
    """Return a sign if one side alone did not choose its best token, which only a rule or sampling causes."""
    own, other = (one.token in one.best.ids[:1] for one in (actual, expected))
    if own and not other:
        return frozenset((Symptom.SAID_FORBIDDEN,))
    return frozenset((Symptom.NOT_ITS_BEST,)) if other and not own else frozenset()
