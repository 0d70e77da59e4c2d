"""Comparisons of a case, from inputs to files, in the order of the stages."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby

from pytest_dsocr.compare.inputs import compare_inputs
from pytest_dsocr.compare.output import Tie, compare_output, is_sure
from pytest_dsocr.compare.seams import compare_rounding, compare_seam, is_reordered
from pytest_dsocr.compare.tokens import compare_best, compare_logits, compare_tokens, does_not_end
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, lost, not_compared
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.contract.artifacts import MMD
from pytest_dsocr.models import VISION
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.block_seams import in_stage_order
from pytest_dsocr.records.config import Level, SubjectFaultError
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import ReferenceResult, Seam
from pytest_dsocr.records.subject_result import SubjectPart, SubjectResult

DECODING = ("prefill_best", "logits", "tokens")

OUTPUT = ("text", "spans", "boxes")

FILES = (MMD, "artefacts")

RIGHT = (Verdict.MATCH, Verdict.DRIFT)

OTHER_ORDER = "the crops are encoded in another order, and put back by the stage"

STAGES = (*COMPARED, *VISION, PREFILL, *DECODING, "read", *OUTPUT, *FILES)
"""Order of a case's comparisons."""


def compare_observations(actual: SubjectResult, expected: ReferenceResult, limits: Tolerances) -> Iterator[Comparison]:
    """Yield every comparison of a case, in the stages' order.

    A comparison above the subject's level, or of a tensor that the subject does not promise, is NOT-COMPARED as not
    offered. One that an error of the subject prevented is NOT-COMPARED as well, and never passes.
    """
    yield from _inputs(actual, expected)
    names = in_stage_order({**actual.seams, **expected.seams})
    seams = {one.what: one for name in names for one in _seam(name, actual, expected.seams, limits)}
    known = (_of_known_order(one, seams, actual, expected.seams) for one in seams.values())
    rounding = {stage: compare_rounding(stage, one, limits.rounding) for stage, one in actual.rounding.items()}
    for stage, of_stage in groupby(known, key=lambda one: one.stage):
        yield from (*of_stage, *filter(None, [rounding.pop(stage, None)]))
    yield from rounding.values()
    decoding = list(_decoding(actual, expected, limits))
    yield from decoding
    if "read" in actual.lost:
        yield from _absent(OUTPUT, actual, "read")
        yield from _absent(FILES, actual, "write")
        return
    tie = _tie(decoding[-1], actual, expected)
    output = compare_output(actual, expected.output, limits, tie)
    for one in _read(actual, output) if actual.reread and tie is None else output:
        yield from _absent((one.what,), actual, "write") if "write" in actual.lost and one.what in FILES else (one,)


def _absent(names: Iterable[str], actual: SubjectResult, part: SubjectPart) -> Iterator[Comparison]:
    """Yield a NOT-COMPARED comparison for each name: lost to an error, or not offered."""
    for name in names:
        lost_to = actual.fault if part in actual.lost else None
        yield not_compared(name, Reason.NOT_OFFERED) if lost_to is None else lost(name, lost_to)


def _inputs(actual: SubjectResult, expected: ReferenceResult) -> Iterator[Comparison]:
    if actual.inputs is None:
        yield from _absent(COMPARED, actual, "inputs")
    else:
        for one in compare_inputs(actual.inputs, expected.inputs):
            yield not_compared(one.what, Reason.NOT_OFFERED) if one.what in actual.not_offered else one


def _seam(name: str, actual: SubjectResult, expected: Mapping[str, Seam], limits: Tolerances) -> Iterator[Comparison]:
    tensor = TensorName.parse(name)
    is_block = tensor.block is not None
    if is_block and name not in expected:
        return
    part: SubjectPart = "prefill" if tensor.stage == PREFILL else "vision"
    promised = actual.level >= Level.MODULES if is_block else name in actual.promised or part in actual.lost
    if name in actual.not_offered:
        yield not_compared(name, Reason.NOT_OFFERED)
    elif why := actual.unplaced.get(name):
        yield not_compared(name, Reason.NOT_BY_BLOCK, f"{Reason.NOT_BY_BLOCK}: {why}")
    elif name not in actual.seams and (part in actual.lost or not promised):
        yield from _absent((name,), actual, part) if promised else (not_compared(name, Reason.NOT_OFFERED),)
    else:
        yield compare_seam(name, actual.seams.get(name), expected.get(name), limits.of_seam(name), limits.usual)


def _of_known_order(
    found: Comparison, seams: Mapping[str, Comparison], actual: SubjectResult, expected: Mapping[str, Seam]
) -> Comparison:
    """Leave out a block with the crops in another order, if what the stage gives of them is right."""
    name, tensor = found.what, found.tensor
    of_stage = seams.get(str(tensor.whole)) if tensor.block is not None and tensor.view == "crops" else None
    if of_stage is None or found.verdict is not Verdict.WRONG or of_stage.verdict not in RIGHT:
        return found
    is_other = name in actual.seams and is_reordered(actual.seams[name], expected[name])
    return not_compared(name, Reason.NOT_BY_BLOCK, f"{Reason.NOT_BY_BLOCK}: {OTHER_ORDER}") if is_other else found


def _decoding(actual: SubjectResult, expected: ReferenceResult, limits: Tolerances) -> Iterator[Comparison]:
    if actual.prefill_best is None:
        yield from _absent(("prefill_best",), actual, "prefill")
    else:
        yield compare_best(actual.prefill_best, expected.prefill_best, limits)
    if actual.forced is None:
        yield from _absent(("logits", "tokens"), actual, "step")
        return
    heard = expected.steps[: len(actual.forced)] if "step" in actual.lost else expected.steps
    tokens = compare_tokens(actual.forced, heard, limits)
    for one in (compare_logits(actual.forced, heard, limits), tokens if actual.ends else does_not_end(tokens)):
        if actual.fault and "step" in actual.lost:
            yield _cut_short(one, actual.fault, len(heard))
        else:
            left = f"; {len(expected.steps) - len(heard)} later steps are not offered" * (heard != expected.steps)
            yield replace(one, measured=f"{one.measured}{left}")


def _cut_short(found: Comparison, fault: SubjectFaultError, steps: int) -> Comparison:
    """Keep a WRONG verdict on the first ``steps``; any other is lost, as the remaining steps are unknown."""
    if found.verdict is Verdict.WRONG:
        return found
    gone = lost(found.what, fault)
    before = f"{found.verdict} up to there, {found.measured}" if steps else "it was the first"
    return replace(gone, measured=f"step {steps} {gone.measured}; {before}")


def _read(actual: SubjectResult, output: Iterator[Comparison]) -> Iterator[Comparison]:
    """Yield the comparisons of an output, and first whether ``read`` agrees with the subject's own tokens.

    All those tokens equal the reference's. If the text is wrong, but ``text_of`` returns the same text for them,
    ``read`` agrees.
    """
    text = next(output)
    steps = len(actual.forced or ())
    verdict = Verdict.MATCH if text.verdict is Verdict.WRONG and actual.text == actual.text_of_tokens else text.verdict
    agrees = "agrees" if verdict is not Verdict.WRONG else "disagrees"
    measured = f"{agrees} with the subject's own {steps} steps, which equal the reference's"
    retraced = f"; {actual.retraced}" if verdict is Verdict.WRONG and actual.retraced else ""
    yield Comparison("read", verdict, f"{measured}{retraced}")
    yield text
    yield from output


def _tie(tokens: Comparison, actual: SubjectResult, expected: ReferenceResult) -> Tie | None:
    """Return the tie after which free decoding may differ; None if a difference of tokens is no tie."""
    if tokens.verdict is Verdict.WRONG or actual.forced is None or actual.continued is None:
        return None
    differing = (k for k, step in enumerate(expected.steps) if actual.forced[k].token != step.token)
    step = actual.left_at if actual.left_at is not None else next(differing, None)
    return None if step is None else Tie(step, actual.continued, is_sure(expected.steps))
