"""Compare what the tokens became: text, spans, boxes, ``result.mmd`` and the files written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_dsocr.compare.after_tie import Tie
from pytest_dsocr.compare.artefacts import compare_artefacts
from pytest_dsocr.compare.boxes import compare_boxes, compare_spans
from pytest_dsocr.compare.degeneration import Astray
from pytest_dsocr.compare.signs import Reason
from pytest_dsocr.compare.text import compare_content, compare_text
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Verdict, not_compared
from pytest_dsocr.contract.artifacts import MMD
from pytest_dsocr.observation.answer import Answer
from pytest_dsocr.observation.observation import Output


def compare_output(mine: Answer, theirs: Output, limits: Tolerances, tie: Tie | None) -> Iterator[Comparison]:
    """Yield the comparisons of two outputs.

    After a tie, what is WRONG is a TIE-FLIP only where it is what the subject's own steps give from there on, and that
    still reads the same page.

    Args:
        mine: the subject's, decoded freely; files that it does not write are not compared.
        theirs: the reference's.
        limits: how far apart texts and boxes may be.
        tie: where the subject's steps part from the reference's over one, and what they give then.
    """
    found = list(_compared(mine, theirs, limits))
    if tie is None or found[0].verdict is Verdict.MATCH:
        yield from found
        return
    own = list(_compared(mine, tie.continued, limits))
    yield _read(own[0], tie.step)
    astray = tie.astray(theirs)
    for one, follows in zip(found, own, strict=True):
        yield one if one.verdict is not Verdict.WRONG else _after_tie(one, follows, tie.step, astray)


def _compared(mine: Answer, theirs: Output, limits: Tolerances) -> Iterator[Comparison]:
    text = compare_text(mine.text, theirs.text, limits.text)
    yield replace(text, measured=f"{_limit(mine, theirs)}{text.measured}") if text.verdict is Verdict.WRONG else text
    yield compare_spans(mine.spans, theirs.spans, limits)
    yield compare_boxes(mine.spans, theirs.spans, limits)
    if mine.mmd is None:
        yield not_compared(MMD, Reason.NOT_OFFERED)
    else:
        yield compare_content(MMD, mine.mmd, theirs.mmd, limits.text)
    if mine.artefacts is None:
        yield not_compared("artefacts", Reason.NOT_OFFERED)
    else:
        yield compare_artefacts(mine.artefacts, theirs.artefacts, limits)


def _limit(mine: Answer | Output, theirs: Output) -> str:
    if getattr(mine, "ended_by", "") != "length":
        return ""
    own = "its own" if len(mine.text) < len(theirs.text) else "the"
    return f"stopped at {own} limit of tokens, as the server says (finish_reason: length); "


def _read(own: Comparison, step: int) -> Comparison:
    agrees = "disagrees" if own.verdict is Verdict.WRONG else "agrees"
    measured = f"{agrees} with the subject's own steps, which leave the reference's at a tie at step {step}"
    return Comparison("read", own.verdict, measured)


def _after_tie(comparison: Comparison, own: Comparison, step: int, astray: Sequence[Astray]) -> Comparison:
    if own.passes and not astray:
        measured = f"follows the tie at step {step}: {comparison.measured}"
        return replace(comparison, verdict=Verdict.TIE_FLIP, measured=measured)
    why = "no longer reads this page" if own.passes else "is not what the subject's own steps give"
    measured = f"{why} after the tie at step {step}: {comparison.measured}"
    if not own.passes:
        return replace(comparison, measured=measured)
    signs = comparison.signs | {one.sign for one in astray}
    return replace(comparison, measured=measured, details=(*map(str, astray), *comparison.details), signs=signs)
