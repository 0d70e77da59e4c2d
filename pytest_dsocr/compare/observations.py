"""A whole case compared, from inputs to files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_dsocr.compare.inputs import compare_inputs
from pytest_dsocr.compare.output import compare_output
from pytest_dsocr.compare.seams import compare_seam
from pytest_dsocr.compare.tokens import ForcedStep, compare_best, compare_logits, compare_tokens
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.observation import Observation


def compare_observations(
    mine: Observation, forced: Sequence[ForcedStep], theirs: Observation, limits: Tolerances
) -> Iterator[Comparison]:
    """Yield every comparison of a case, in the stages' order.

    Args:
        mine: the subject's, decoded freely.
        forced: the subject's steps along the reference's tokens.
        theirs: the reference's.
        limits: how far apart they may be.
    """
    yield from compare_inputs(mine.inputs, theirs.inputs)
    for name in dict.fromkeys([*theirs.seams, *mine.seams]):
        allowed = limits.logits if name == "prefill" else limits.seam
        yield compare_seam(name, mine.seams.get(name), theirs.seams.get(name), allowed)
    yield compare_best(mine.prefill_best, theirs.prefill_best, limits)
    yield compare_logits(forced, theirs.steps, limits)
    tokens = compare_tokens(forced, theirs.steps, limits)
    yield tokens
    yield from compare_output(mine.output, theirs.output, _tie(tokens, forced, theirs))


def _tie(tokens: Comparison, forced: Sequence[ForcedStep], theirs: Observation) -> int | None:
    """Give the step after which free decoding may differ because of a tie alone."""
    if tokens.verdict is not Verdict.TIE_FLIP:
        return None
    return next(k for k, step in enumerate(theirs.steps) if forced[k].token != step.token)
