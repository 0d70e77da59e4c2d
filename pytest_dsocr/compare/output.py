"""What came of the tokens, compared: text, spans, boxes, ``result.mmd`` and the files written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from pytest_dsocr.compare.verdict import NEITHER, Comparison, Verdict, equal, not_compared, shown
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.observation import Output

MMD = "result.mmd"
OVERLAY = "result_with_boxes.jpg"
OURS = "info.json"
SHOWN_BOXES = 3
NOT_EXACT = (MMD, OVERLAY, OURS)
"""Files whose sizes say nothing: compared by content, drawn in random colours, or ours alone."""


def compare_output(mine: Output, theirs: Output, tie_at: int | None) -> Iterator[Comparison]:
    """Yield the comparisons of two outputs.

    Args:
        mine: the subject's, decoded freely.
        theirs: the reference's.
        tie_at: the step at which the two parted over a tie; what differs after it is the tie's doing.
    """
    found = [_text("text", mine.text, theirs.text), _labels(mine, theirs), _boxes(mine, theirs)]
    found += [_text(MMD, mine.mmd, theirs.mmd), _artefacts(mine, theirs)]
    for comparison in found:
        yield comparison if tie_at is None else _after_tie(comparison, tie_at)


def _after_tie(comparison: Comparison, step: int) -> Comparison:
    if comparison.verdict is not Verdict.WRONG:
        return comparison
    return Comparison(
        comparison.what,
        Verdict.TIE_FLIP,
        f"follows the tie at step {step}: {comparison.measured}",
        None,
        comparison.details,
    )


def _text(what: str, mine: str, theirs: str) -> Comparison:
    if mine == theirs:
        return Comparison(what, Verdict.MATCH, f"{len(theirs)} characters")
    at = next(k for k, (a, b) in enumerate(zip_longest(mine, theirs)) if a != b)
    context = tuple(
        f"{side:<10}{shown(text[max(0, at - 20) :], 60)!r}" for side, text in (("subject", mine), ("reference", theirs))
    )
    measured = f"parts at character {at} of {len(theirs)} (the subject has {len(mine)})"
    return Comparison(what, Verdict.WRONG, measured, None, context)


def _labels(mine: Output, theirs: Output) -> Comparison:
    if not mine.spans and not theirs.spans:
        return not_compared("spans", NEITHER)
    labels = [[span.label for span in output.spans] for output in (mine, theirs)]
    return equal("spans", labels[0], labels[1], f"{len(theirs.spans)}, labels in order")


def _boxes(mine: Output, theirs: Output) -> Comparison:
    boxes = [
        [(k, span.label, box) for k, span in enumerate(output.spans) for box in span.boxes] for output in (mine, theirs)
    ]
    if not any(boxes):
        return not_compared("boxes", NEITHER)
    if len(boxes[0]) != len(boxes[1]):
        return Comparison("boxes", Verdict.WRONG, f"{len(boxes[0])}; the reference has {len(boxes[1])}")
    differing = [k for k, (a, b) in enumerate(zip(*boxes, strict=True)) if a != b]
    if not differing:
        return Comparison("boxes", Verdict.MATCH, f"{len(boxes[1])}, coordinates equal")
    details = tuple(
        f"box {k}: {_box(boxes[0][k])}; the reference has {_box(boxes[1][k])}" for k in differing[:SHOWN_BOXES]
    )
    return Comparison("boxes", Verdict.WRONG, f"{len(differing)} of {len(boxes[1])} differ", None, details)


def _box(box: tuple[int, str, Box]) -> str:
    span, label, corners = box
    return f"{label} {list(corners)} of span {span}"


def _artefacts(mine: Output, theirs: Output) -> Comparison:
    names = [sorted(set(output.artefacts) - {OURS}) for output in (mine, theirs)]
    if names[0] != names[1]:
        return equal("artefacts", names[0], names[1], "")
    exact = [name for name in names[1] if name not in NOT_EXACT]
    sizes = [{name: output.artefacts[name] for name in exact} for output in (mine, theirs)]
    return equal("artefacts", sizes[0], sizes[1], f"{len(names[1])} files; {len(exact)} figures of equal size")
