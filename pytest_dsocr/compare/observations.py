"""Compare a whole case, from inputs to files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from pytest_dsocr.compare.inputs import compare_inputs
from pytest_dsocr.compare.output import Tie, compare_output, is_sure
from pytest_dsocr.compare.seams import compare_seam
from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.tokens import compare_best, compare_logits, compare_tokens, does_not_end
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict, lost, not_compared
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.contract.artifacts import MMD
from pytest_dsocr.observation.answer import Answer, Part
from pytest_dsocr.observation.block_seams import in_stage_order
from pytest_dsocr.observation.level import Level, SubjectFaultError
from pytest_dsocr.observation.observation import Observation, Seam

DECODING = ("prefill_best", "logits", "tokens")
OUTPUT = ("text", "spans", "boxes")
FILES = (MMD, "artefacts")
STAGES = (*COMPARED, "sam", "clip", "projector", "vision_fusion", "prefill", *DECODING, "read", *OUTPUT, *FILES)
"""Of the comparisons of a case, in their order."""


def compare_observations(mine: Answer, theirs: Observation, limits: Tolerances) -> Iterator[Comparison]:
    """Yield every comparison of a case, in the stages' order.

    What is above the subject's level, or what it does not say that it gives, is NOT-COMPARED as not offered; what was
    lost to an error of the subject's is NOT-COMPARED as well, and never passes.

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
    if "read" in mine.lost:
        yield from _absent(OUTPUT, mine, "read")
        yield from _absent(FILES, mine, "write")
        return
    output = compare_output(mine, theirs.output, limits, _tie(decoding[-1], mine, theirs))
    for one in _read(mine, output) if mine.reread else output:
        yield from _absent((one.what,), mine, "write") if "write" in mine.lost and one.what in FILES else (one,)


def _absent(names: Iterable[str], mine: Answer, part: Part) -> Iterator[Comparison]:
    """Say for each thing that is not there whether it was lost to an error or is not offered."""
    for name in names:
        lost_to = mine.fault if part in mine.lost else None
        yield not_compared(name, Reason.NOT_OFFERED) if lost_to is None else lost(name, lost_to)


def _inputs(mine: Answer, theirs: Observation) -> Iterator[Comparison]:
    if mine.inputs is None:
        yield from _absent(COMPARED, mine, "inputs")
    else:
        yield from compare_inputs(mine.inputs, theirs.inputs)


def _seam(name: str, mine: Answer, theirs: Mapping[str, Seam], limits: Tolerances) -> Iterator[Comparison]:
    deep = "/" in name
    if deep and name not in theirs:
        return
    part: Part = "prefill" if name.startswith("prefill") else "vision"
    promised = mine.level >= Level.MODULES if deep else name in mine.promised or part in mine.lost
    if name not in mine.seams and (part in mine.lost or not promised):
        yield from _absent((name,), mine, part) if promised else (not_compared(name, Reason.NOT_OFFERED),)
    else:
        yield compare_seam(name, mine.seams.get(name), theirs.get(name), limits.of_seam(name), limits.usual)


def _decoding(mine: Answer, theirs: Observation, limits: Tolerances) -> Iterator[Comparison]:
    if mine.prefill_best is None:
        yield from _absent(("prefill_best",), mine, "prefill")
    else:
        yield compare_best(mine.prefill_best, theirs.prefill_best, limits)
    if mine.forced is None:
        yield from _absent(("logits", "tokens"), mine, "step")
        return
    heard = theirs.steps[: len(mine.forced)] if "step" in mine.lost else theirs.steps
    tokens = compare_tokens(mine.forced, heard, limits)
    for one in (compare_logits(mine.forced, heard, limits), tokens if mine.ends else does_not_end(tokens)):
        yield _cut_short(one, mine.fault, len(heard)) if mine.fault and "step" in mine.lost else one


def _cut_short(found: Comparison, fault: SubjectFaultError, steps: int) -> Comparison:
    """Keep a WRONG verdict on the first ``steps``; any other is lost, as the remaining steps are unknown."""
    if found.verdict is Verdict.WRONG:
        return found
    gone = lost(found.what, fault)
    before = f"{found.verdict} up to there, {found.measured}" if steps else "it was the first"
    return replace(gone, measured=f"step {steps} {gone.measured}; {before}")


def _read(mine: Answer, output: Iterator[Comparison]) -> Iterator[Comparison]:
    """Say first whether ``read`` gave the text of the subject's own tokens, all of which equal the reference's.

    Where that text is wrong and is what the subject makes of these tokens apart from ``read``, ``read`` is right.
    """
    text = next(output)
    steps = len(mine.forced or ())
    verdict = Verdict.MATCH if text.verdict is Verdict.WRONG and mine.text == mine.told else text.verdict
    agrees = "agrees" if verdict is not Verdict.WRONG else "disagrees"
    measured = f"{agrees} with the subject's own {steps} steps, which equal the reference's"
    yield Comparison("read", verdict, measured)
    yield text
    yield from output


def _tie(tokens: Comparison, mine: Answer, theirs: Observation) -> Tie | None:
    """Give the tie after which free decoding may differ, where every difference of tokens is a tie."""
    if tokens.verdict is not Verdict.TIE_FLIP or mine.forced is None or mine.continued is None:
        return None
    step = next(k for k, step in enumerate(theirs.steps) if mine.forced[k].token != step.token)
    return Tie(step, mine.continued, is_sure(theirs.steps))
