"""What came of the tokens, compared: text, spans, boxes, ``result.mmd`` and the files written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pytest_dsocr.answer import Answer
from pytest_dsocr.compare.artefacts import MMD, compare_artefacts
from pytest_dsocr.compare.boxes import compare_boxes, compare_spans
from pytest_dsocr.compare.text import compare_content, compare_text
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import NOT_OFFERED, Comparison, Verdict, not_compared
from pytest_dsocr.observation import Output


def compare_output(mine: Answer, theirs: Output, limits: Tolerances, tie_at: int | None) -> Iterator[Comparison]:
    """Yield the comparisons of two outputs.

    Args:
        mine: the subject's, decoded freely; files that it does not write are not compared.
        theirs: the reference's.
        limits: how far apart texts and boxes may be.
        tie_at: the step at which the two parted over a tie; what differs after it is the tie's doing.
    """
    for comparison in _compared(mine, theirs, limits):
        yield comparison if tie_at is None else _after_tie(comparison, tie_at)


def _compared(mine: Answer, theirs: Output, limits: Tolerances) -> Iterator[Comparison]:
    yield compare_text(mine.text, theirs.text, limits.text)
    yield compare_spans(mine.spans, theirs.spans, limits)
    yield compare_boxes(mine.spans, theirs.spans, limits)
    if mine.mmd is None:
        yield not_compared(MMD, NOT_OFFERED)
    else:
        yield compare_content(MMD, mine.mmd, theirs.mmd, limits.text)
    if mine.artefacts is None:
        yield not_compared("artefacts", NOT_OFFERED)
    else:
        yield compare_artefacts(mine.artefacts, theirs.artefacts, limits)


def _after_tie(comparison: Comparison, step: int) -> Comparison:
    if comparison.verdict is not Verdict.WRONG:
        return comparison
    measured = f"follows the tie at step {step}: {comparison.measured}"
    return replace(comparison, verdict=Verdict.TIE_FLIP, measured=measured)
