"""Compare greedy tokens, step by step along the reference's own output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_dsocr.compare.signs import IN_WORDS, Reason, Sign
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared
from pytest_dsocr.observation.answer import NO_CHOICE, ForcedStep
from pytest_dsocr.observation.observation import Best, Step

SHOWN_STEPS = 5
BY_FIRST_STEP = (Sign.FROM_PREFILL, Sign.FROM_FIRST_STEP)


def compare_best(mine: Best, theirs: Best, limits: Tolerances) -> Comparison:
    """Compare the best first tokens. A token that is not among the subject's best has at most the last one's logit."""
    if not mine.ids or not theirs.ids:
        measured = f"{len(mine.ids)} best tokens of the subject, {len(theirs.ids)} of the reference"
        return not_compared("prefill_best", Reason.INCOMPLETE, measured)
    own, bound = dict(zip(mine.ids, mine.logits, strict=True)), mine.logits[-1]
    apart = [
        abs(own[token] - logit) if token in own else max(0.0, logit - bound)
        for token, logit in zip(theirs.ids, theirs.logits, strict=True)
    ]
    error = _relative(apart, mine.logits, theirs)
    if error == 0.0 and mine == theirs:
        return Comparison("prefill_best", Verdict.MATCH, f"the best {len(theirs.ids)} and their logits", 0.0)
    shared = sum(token in own for token in theirs.ids)
    verdict = Verdict.DRIFT if error <= limits.logits else Verdict.WRONG
    measured = (
        f"{shared} of the best {len(theirs.ids)} shared, relative error {error:.1e} (allowed {limits.logits:.0e})"
    )
    return Comparison("prefill_best", verdict, measured, error)


def compare_logits(forced: Sequence[ForcedStep], theirs: Sequence[Step], limits: Tolerances) -> Comparison:
    """Compare the logits of the reference's best tokens at every step, teacher-forced."""
    if not theirs or len(forced) != len(theirs):
        return not_compared("logits", Reason.INCOMPLETE, _steps(forced, theirs))
    errors = [_logit_error(mine, step) for mine, step in zip(forced, theirs, strict=True)]
    error = max(errors)
    if error == 0.0:
        return Comparison("logits", Verdict.MATCH, f"those of the best tokens at {len(theirs)} steps", 0.0)
    measured = f"relative error at most {error:.1e}, at step {errors.index(error)} (allowed {limits.logits:.0e})"
    beyond = [k for k, one in enumerate(errors) if not one <= limits.logits]
    if not beyond:
        return Comparison("logits", Verdict.DRIFT, measured, error)
    if spoilt := forced[beyond[0]].not_finite:
        measured = f"step {beyond[0]}: {spoilt}; the reference is finite"
    signs = tuple(_logit_signs(forced, beyond[0]))
    first = f"out of tolerance from step {beyond[0]} on, at {len(beyond)} of {len(errors)} steps"
    details = (first, *(IN_WORDS[sign] for sign in signs if sign in IN_WORDS))
    return Comparison("logits", Verdict.WRONG, measured, error, details, frozenset(signs))


def _steps(forced: Sequence[ForcedStep], theirs: Sequence[Step]) -> str:
    return f"{len(forced)} steps of the subject, {len(theirs)} of the reference"


def _logit_signs(forced: Sequence[ForcedStep], first: int) -> Iterator[Sign]:
    """Yield the signs of logits that are out of tolerance from step ``first`` on; those of step 0 are prefill's."""
    if first < len(BY_FIRST_STEP):
        yield BY_FIRST_STEP[first]
    if forced[first].not_finite:
        yield Sign.NOT_FINITE
    if len(forced) > 1 and len({mine.best for mine in forced}) == 1:
        yield Sign.STANDS_STILL


def compare_tokens(forced: Sequence[ForcedStep], theirs: Sequence[Step], limits: Tolerances) -> Comparison:
    """Compare the choice at every step, teacher-forced: MATCH, TIE-FLIP where all that differ are ties, or WRONG."""
    if not theirs or len(forced) != len(theirs):
        return not_compared("tokens", Reason.INCOMPLETE, _steps(forced, theirs))
    differing = [k for k, (mine, step) in enumerate(zip(forced, theirs, strict=True)) if mine.token != step.token]
    if not differing:
        return Comparison("tokens", Verdict.MATCH, f"all {len(theirs)}")
    wrong = [k for k in differing if not is_tie(forced[k], theirs[k], limits)]
    verdict = Verdict.WRONG if wrong else Verdict.TIE_FLIP
    measured = f"{len(theirs) - len(differing)} of {len(theirs)} equal, {len(differing) - len(wrong)} ties"
    details = [_told(k, forced[k], theirs[k], limits) for k in (wrong or differing)[:SHOWN_STEPS]]
    signs = _rule(forced[wrong[0]], theirs[wrong[0]]) if wrong else frozenset()
    details += [IN_WORDS[sign] for sign in signs]
    measured += f"; first differing step {differing[0]}"
    return Comparison("tokens", verdict, measured, None, tuple(details), signs)


def does_not_end(tokens: Comparison) -> Comparison:
    """Say of equal tokens that the subject's own policy does not end with them; other tokens are told first."""
    if tokens.verdict is not Verdict.MATCH:
        return tokens
    signs = frozenset((Sign.NO_END,))
    measured = f"{tokens.measured}, but by the subject's policy they are not the whole output"
    return replace(tokens, verdict=Verdict.WRONG, measured=measured, details=(IN_WORDS[Sign.NO_END],), signs=signs)


def is_tie(mine: ForcedStep, theirs: Step, limits: Tolerances) -> bool:
    """Say whether both sides saw the two tokens as equals, up to rounding.

    Both must have a logit of both tokens at hand, and neither may see them further apart than the limit.
    """
    gaps = (gap_ulps(best, mine.token, theirs.token, limits) for best in (mine.at_hand(theirs), theirs.best))
    return all(gap <= limits.ties for gap in gaps)


def gap_ulps(best: Best, a: int, b: int, limits: Tolerances) -> float:
    """Give how far two tokens' logits are apart, in ULP of the best; infinite where one is not among ``best``."""
    if a not in best.ids or b not in best.ids:
        return math.inf
    apart = best.logits[best.ids.index(a)] - best.logits[best.ids.index(b)]
    return abs(apart) / limits.ulp(best.logits[0])


def _logit_error(mine: ForcedStep, theirs: Step) -> float:
    if mine.not_finite or len(mine.at_reference) != len(theirs.best.logits):
        return math.inf
    apart = [abs(a - b) for a, b in zip(mine.at_reference, theirs.best.logits, strict=True)]
    return _relative(apart, mine.at_reference, theirs.best)


def _relative(apart: Sequence[float], mine: Sequence[float], theirs: Best) -> float:
    """Give the largest difference over the largest logit; infinite where a side holds a NaN, infinity or nothing."""
    if not apart or not all(map(math.isfinite, (*mine, *theirs.logits))):
        return math.inf
    return max(apart) / (max(map(abs, theirs.logits)) or 1.0)


def _told(k: int, mine: ForcedStep, theirs: Step, limits: Tolerances) -> str:
    if mine.token == NO_CHOICE:
        return f"step {k}: no choice, for its logits hold NaN or infinity; the reference has {theirs.token}"
    gaps = [gap_ulps(best, mine.token, theirs.token, limits) for best in (theirs.best, mine.at_hand(theirs))]
    apart = " and ".join(f"{gap:.0f}" if gap < math.inf else "unknown" for gap in gaps)
    return (
        f"step {k}: token {mine.token}, the reference has {theirs.token}; ULP of {limits.dtype} between them: "
        f"{apart} (reference, subject; a tie: up to {limits.ties})"
    )


def _rule(mine: ForcedStep, theirs: Step) -> frozenset[Sign]:
    """Say which side did not choose its best token: only a rule or sampling makes it do so."""
    own, other = (token in best.ids[:1] for token, best in ((mine.token, mine.best), (theirs.token, theirs.best)))
    if own and not other:
        return frozenset((Sign.SAID_FORBIDDEN,))
    return frozenset((Sign.NOT_ITS_BEST,)) if other and not own else frozenset()
