"""Losses of a port in fewer bits on each page, and the part of them that its budget allows.

A quantised model is no MATCH of the vendor's, and need not be wrong. If a budget is set, tensors, tokens, text and
boxes that differ are DRIFT, and their sum over the pages of the run is compared with the budget. Differences that fewer
bits cannot cause stay WRONG: inputs, shapes, NaN, how decoding ends, the effect of a known mistake, and errors that
recur each time. So do all kinds of difference that the budget does not limit.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from statistics import fmean

from pytest_dsocr.compare.boxes import pair_up
from pytest_dsocr.compare.verdict import Comparison, Symptom, Verdict
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.contract.artifacts import MMD
from pytest_dsocr.contract.markup import UNITS
from pytest_dsocr.records.names import ComparisonKind
from pytest_dsocr.records.reference_result import ReferenceResult, SpanSeen
from pytest_dsocr.records.subject_result import SubjectResult

OF_BOXES = ("spans", "boxes", "artefacts")
EXACT = (*COMPARED, "read")
"""Comparisons that no budget covers: the inputs, and whether a reading is that of the subject's own tokens."""
NEVER = frozenset(
    (
        *(Symptom.OTHER_SHAPE, Symptom.NOT_FINITE, Symptom.NO_END, Symptom.STANDS_STILL, Symptom.OTHER_FILES),
        *(Symptom.SCALED, Symptom.HABIT, Symptom.SHARED_MOVE),
    )
)
"""Signs of differences that fewer bits do not cause."""
DEGENERATE = frozenset(
    (
        *(Symptom.EMPTINESS, Symptom.TRUNCATION, Symptom.GOES_ON, Symptom.LOST_START, Symptom.REPETITION),
        *(Symptom.BYTE_MARKS, Symptom.BROKEN_CHARACTERS, Symptom.MARKUP, Symptom.ECHO, Symptom.UNRELATED),
        Symptom.ENDS_INSIDE,
    )
)
KINDS = {"tokens": "tokens", "text": "characters", MMD: "characters", **dict.fromkeys(OF_BOXES, "boxes")}
"""Loss that measures a comparison, by its stage; for all others it is ``kl``."""


def on_budget(found: Comparison, allowed: Collection[str]) -> Comparison:
    """Return a comparison under a budget: DRIFT if it is WRONG only because of its size.

    Args:
        found: the comparison under exact limits.
        allowed: the kinds of losses that the budget limits; all others keep their exact limits.
    """
    is_exact = found.stage in EXACT or found.name.kind is ComparisonKind.ROUNDING or found.signs & NEVER
    kinds = {KINDS.get(found.stage, "kl"), *(["pages"] if found.signs & DEGENERATE else [])}
    is_paid = found.verdict is Verdict.WRONG and not is_exact and kinds <= {*allowed}
    return replace(found, verdict=Verdict.DRIFT) if is_paid else found


def loss_of(actual: SubjectResult, expected: ReferenceResult, text: Comparison) -> dict[str, float]:
    """Return the losses of a page by their names in ``LOSSES``, as far as the subject offers them.

    Args:
        actual: result of the subject.
        expected: result of the reference.
        text: comparison of the two texts, with its signs of a degenerate one.
    """
    from rapidfuzz.distance import Levenshtein

    lost = {}
    if actual.forced and len(actual.forced) == len(expected.steps):
        pairs = [*zip(actual.forced, expected.steps, strict=True)]
        lost["kl"] = fmean(divergence(own.at_reference, step.best.logits) for own, step in pairs)
        lost["tokens"] = fmean(own.token != step.token for own, step in pairs)
    lost["boxes"] = _moved(actual.spans, expected.output.spans)
    lost["characters"] = Levenshtein.normalized_distance(actual.text, expected.output.text)
    return {**lost, "pages": float(bool(text.signs & DEGENERATE))}


def divergence(actual: Sequence[float], expected: Sequence[float]) -> float:
    """Return the Kullback-Leibler divergence of two softmax distributions, in nats; infinite if a logit is infinite.

    For a step's recorded best five tokens, which have nearly all of the probability, it is their part of the whole
    divergence.

    Args:
        actual: the subject's logits of some tokens.
        expected: the reference's logits of the same tokens.
    """
    if len(actual) != len(expected) or not all(map(math.isfinite, (*actual, *expected))):
        return math.inf
    own, others = _log_softmax(actual), _log_softmax(expected)
    return max(0.0, sum(math.exp(p) * (p - q) for p, q in zip(others, own, strict=True)))


def _log_softmax(logits: Sequence[float]) -> list[float]:
    most = max(logits)
    total = most + math.log(sum(math.exp(one - most) for one in logits))
    return [one - total for one in logits]


def _moved(actual: Sequence[SpanSeen], expected: Sequence[SpanSeen]) -> float:
    """Return the mean distance of the boxes of the side that has more; a box under another label has no partner."""
    pairs = pair_up(actual, expected)
    boxes = max(len(pairs.actual), len(pairs.expected))
    placed = zip(pairs.apart, pairs.both, strict=True)
    near = [1 - min(apart / UNITS, 1.0) for apart, (a, b) in placed if a.label == b.label]
    return (boxes - sum(near)) / boxes if boxes else 0.0
