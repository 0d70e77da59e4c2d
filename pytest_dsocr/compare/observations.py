"""A whole case compared, from inputs to files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pytest_dsocr.answer import Answer
from pytest_dsocr.compare.after_tie import Tie, is_sure
from pytest_dsocr.compare.inputs import compare_inputs
from pytest_dsocr.compare.output import compare_output
from pytest_dsocr.compare.seams import compare_seam
from pytest_dsocr.compare.tokens import compare_best, compare_logits, compare_tokens
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import NOT_OFFERED, Comparison, Verdict, not_compared
from pytest_dsocr.deep_seams import in_stage_order
from pytest_dsocr.observation import Observation, Seam
from pytest_dsocr.subjects.protocol import Level

INPUTS = ("input_ids", "images_seq_mask", "images_spatial_crop", "images_crop", "images_ori", "dtypes")
DECODING = ("prefill_best", "logits", "tokens")


def compare_observations(mine: Answer, theirs: Observation, limits: Tolerances) -> Iterator[Comparison]:
    """Yield every comparison of a case, in the stages' order.

    What is above the subject's level, or what it does not say that it gives, is NOT-COMPARED as not offered.

    Args:
        mine: the subject's answer.
        theirs: what the reference saw.
        limits: how far apart they may be.
    """
    yield from _inputs(mine, theirs)
    for name in in_stage_order({**mine.seams, **theirs.seams}):
        yield from _seam(name, mine, theirs.seams, limits)
    decoding = list(_decoding(mine, theirs, limits))
    yield from decoding
    output = compare_output(mine, theirs.output, limits, _tie(decoding[-1], mine, theirs))
    yield from _read(mine, output) if mine.reread else output


def _inputs(mine: Answer, theirs: Observation) -> Iterator[Comparison]:
    if mine.inputs is None:
        yield from (not_compared(name, NOT_OFFERED) for name in INPUTS)
    else:
        yield from compare_inputs(mine.inputs, theirs.inputs)


def _seam(name: str, mine: Answer, theirs: Mapping[str, Seam], limits: Tolerances) -> Iterator[Comparison]:
    deep = "/" in name
    if deep and name not in theirs:
        return
    promised = mine.level >= Level.MODULES if deep else name in mine.promised
    if name not in mine.seams and not promised:
        yield not_compared(name, NOT_OFFERED)
    else:
        allowed = limits.logits if name == "prefill" else limits.seam
        yield compare_seam(name, mine.seams.get(name), theirs.get(name), allowed)


def _decoding(mine: Answer, theirs: Observation, limits: Tolerances) -> Iterator[Comparison]:
    if mine.prefill_best is None or mine.forced is None:
        yield from (not_compared(name, NOT_OFFERED) for name in DECODING)
    else:
        yield compare_best(mine.prefill_best, theirs.prefill_best, limits)
        yield compare_logits(mine.forced, theirs.steps, limits)
        yield compare_tokens(mine.forced, theirs.steps, limits)


def _read(mine: Answer, output: Iterator[Comparison]) -> Iterator[Comparison]:
    """Say first whether what ``read`` gave is what its own tokens mean, all the reference's."""
    text = next(output)
    steps = len(mine.forced or ())
    same = "gives" if text.verdict is not Verdict.WRONG else "does not give"
    yield Comparison("read", text.verdict, f"{same} what its own {steps} steps do, which are the reference's")
    yield text
    yield from output


def _tie(tokens: Comparison, mine: Answer, theirs: Observation) -> Tie | None:
    """Give the tie after which free decoding may differ, if all that differs is ties, and what its steps give then."""
    if tokens.verdict is not Verdict.TIE_FLIP or mine.forced is None or mine.continued is None:
        return None
    step = next(k for k, step in enumerate(theirs.steps) if mine.forced[k].token != step.token)
    return Tie(step, mine.continued, is_sure(theirs.steps))
