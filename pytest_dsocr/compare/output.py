"""Compare outputs: text, spans, boxes, ``result.mmd`` and files; judge what may follow a tie."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from rapidfuzz.distance import Levenshtein, Prefix

from pytest_dsocr.base.words import count
from pytest_dsocr.compare.boxes import compare_boxes, compare_spans, pair_up
from pytest_dsocr.compare.text import TextDefect, compare_content, compare_text, degenerations
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.compare.verdict import Comparison, Reason, Symptom, Verdict, not_compared
from pytest_dsocr.contract.artifacts import GEOMETRY, MMD, OURS, OVERLAY, overlay_of
from pytest_dsocr.contract.markup import UNITS
from pytest_dsocr.models import MODELS
from pytest_dsocr.records.reference_result import Artefact, Output, Step
from pytest_dsocr.records.subject_result import SubjectResult

SURE = 0.5
"""Share of the best token in the probability of a step's best five, at the median step, above which a model can read.
Recordings of ``mini`` have 0.99 and more, those of random weights at most 0.26."""
EDITS, LENGTH, FEW_CHARACTERS = 0.5, 0.25, 24
"""Allowed edits after a tie and difference of lengths, by the longer rest; up to the last, neither counts."""
BOXES, FEW_BOXES, IN_PLACE = 1 / 3, 1, 0.1
"""Share of boxes without a partner, of the side that has more; number that is ignored; largest distance of a partner,
in pages."""
# Measured on some 230 ties of `mini`, bf16 against float32 and eager against sdpa and flash attention, on CPUs and on
# an H200: half of them change a number or two; the worst has 0.32 edits, 0.12 in length, and 3 of 11 boxes. Of the 496
# pairs of shipped pages none is as near but those few that are the same words in two faces (`ci/ties.py` at f393cf6).
AMISS = frozenset(
    (Symptom.EMPTINESS, Symptom.REPETITION, Symptom.BYTE_MARKS, Symptom.BROKEN_CHARACTERS, Symptom.MARKUP, Symptom.ECHO)
)
"""Degenerations that a tie does not cause. A text's end, or the only difference in it, proves nothing."""


@dataclass(frozen=True)
class Tie:
    """The first step at which a tie made the subject choose another token, and the output of its own later steps."""

    step: int
    continued: Output
    sure: bool
    """Whether the reference model is sure of its tokens. With random weights its text is noise."""

    def astray(self, expected: Output) -> tuple[TextDefect, ...]:
        """Return the reasons why the output of the steps no longer reads the reference's page."""
        return tuple(_astray(self.continued, expected)) if self.sure else ()


@dataclass(frozen=True)
class TieDistance:
    """Distance between two readings that differ because of a tie."""

    edits: int
    """Edit distance of the two rests, which start at the first character that differs."""
    longer: int
    """Difference of the rests' lengths in characters."""
    rest: int
    """Number of characters of the longer rest."""
    boxes: int
    """Number of boxes of the side that has more."""
    alone: int
    """Boxes without a partner of the same label within :data:`IN_PLACE` of their place."""

    @classmethod
    def of(cls, actual: Output, expected: Output) -> TieDistance:
        """Measure two outputs."""
        at = Prefix.similarity(actual.text, expected.text)
        rests = actual.text[at:], expected.text[at:]
        pairs = pair_up(actual.spans, expected.spans)
        placed = zip(pairs.apart, pairs.both, strict=True)
        paired = sum(apart <= IN_PLACE * UNITS and a.label == b.label for apart, (a, b) in placed)
        boxes = max(len(pairs.actual), len(pairs.expected))
        shorter, longer = sorted(map(len, rests))
        return cls(Levenshtein.distance(*rests), longer - shorter, longer, boxes, boxes - paired)


def is_sure(steps: Sequence[Step]) -> bool:
    """Return whether a model is sure of most of its tokens, as every model that can read is."""
    return bool(steps) and median(map(_share, steps)) > SURE


def _share(step: Step) -> float:
    """Return the share of the best token in the probability of a step's recorded best."""
    first = max(step.best.logits, default=math.nan)
    return 1 / sum(math.exp(logit - first) for logit in step.best.logits) if math.isfinite(first) else 0.0


def _astray(actual: Output, expected: Output) -> Iterator[TextDefect]:
    near = TieDistance.of(actual, expected)
    if near.edits > max(FEW_CHARACTERS, EDITS * near.rest):
        how = f"{near.edits} edits of the {near.rest} characters after it (allowed {EDITS:.0%})"
        yield TextDefect(Symptom.UNRELATED, how)
    if near.longer > max(FEW_CHARACTERS, LENGTH * near.rest):
        how = f"{len(actual.text)} characters, the reference has {len(expected.text)} (allowed {LENGTH:.0%} apart)"
        yield TextDefect(Symptom.LENGTH, how)
    if near.alone > max(FEW_BOXES, BOXES * near.boxes):
        yield TextDefect(Symptom.ELSEWHERE, f"{near.alone} of {near.boxes} boxes have no partner (allowed {BOXES:.0%})")
    yield from (one for one in degenerations(actual.text, expected.text) if one.sign in AMISS)


RESULTS = {family.form.result_file for family in MODELS.values()}
"""Names of the files whose content is compared."""
ONE_SIDED = {OURS, GEOMETRY}
"""Files that only one side must write: ours, and a picture that only the vendor's matplotlib draws."""
SHOWN_FILES = 5

Files = Mapping[str, Artefact]


def compare_artefacts(actual: Files, expected: Files, limits: Tolerances) -> Comparison:
    """Compare two folders of files.

    Figures are cut out by their boxes, and DRIFT with them. The same number of figures as of boxes may be missing or
    surplus. If none is, each side may be longer or shorter by the sum of the moves allowed at its two ends.
    """
    own, others = _figures(actual), _figures(expected)
    names = [set(files) - set(figures) - ONE_SIDED for files, figures in ((actual, own), (expected, others))]
    if names[0] == names[1] and own == others:
        measured = f"{_count(expected)} files; {count(len(others), 'figure')} of equal size"
        return Comparison("artefacts", Verdict.MATCH, measured)
    fine = names[0] == names[1] and _drift(own, others, expected, limits)
    counts = _count(actual), _count(expected)
    measured = f"{counts[0]} files, {len(own)} figures; the reference has {counts[1]}, {len(others)} figures"
    details = tuple(_details(actual, expected))[:SHOWN_FILES]
    signs = frozenset((Symptom.OTHER_FILES,) if names[0] != names[1] else ())
    return Comparison("artefacts", Verdict.DRIFT if fine else Verdict.WRONG, measured, None, details, signs)


def _figures(files: Files) -> Files:
    return {name: file for name, file in files.items() if _is_exact(name) and name not in ONE_SIDED}


def _is_exact(name: str) -> bool:
    """Return whether a file's size is compared; pages with their boxes have random colours."""
    return name not in RESULTS and not name.startswith(Path(OVERLAY).stem)


def _count(files: Files) -> int:
    return len(set(files) - ONE_SIDED)


def _page_px(files: Files, figure: str) -> tuple[int, int]:
    page = re.match(r"images/page_(\d+)_", figure)
    overlay = overlay_of(int(page[1]) if page else None)
    return (overlay in files and files[overlay].size_px) or (0, 0)


def _drift(own: Files, others: Files, expected: Files, limits: Tolerances) -> bool:
    if set(own) != set(others):
        return 0 < abs(len(own) - len(others)) <= limits.boxes
    return limits.coords > 0 and all(
        _close(own[name], others[name], _page_px(expected, name), limits) for name in others
    )


def _close(actual: Artefact, expected: Artefact, page_px: tuple[int, int], limits: Tolerances) -> bool:
    if actual.size_px is None or expected.size_px is None:
        return actual == expected
    sides = zip(actual.size_px, expected.size_px, page_px, strict=True)
    return all(abs(a - b) <= 2 * limits.coords * page + 1 for a, b, page in sides)


def _details(actual: Files, expected: Files) -> Iterator[str]:
    for name in sorted({*actual, *expected} - ONE_SIDED):
        if name not in expected:
            yield f"surplus: {name}"
        elif name not in actual:
            yield f"missing: {name}"
        elif _is_exact(name) and actual[name] != expected[name]:
            yield f"{name}: {_described(actual[name])}; the reference has {_described(expected[name])}"


def _described(file: Artefact) -> str:
    size = "" if file.size_px is None else f" of {file.size_px[0]} x {file.size_px[1]} px"
    return f"{file.bytes} bytes{size}"


def compare_output(
    actual: SubjectResult, expected: Output, limits: Tolerances, tie: Tie | None
) -> Iterator[Comparison]:
    """Yield the comparisons of two outputs.

    After a tie, a WRONG comparison is a TIE-FLIP only if the subject's own steps lead to the same output, and that
    output still reads the same page.
    """
    found = list(_compared(actual, expected, limits))
    if tie is None or found[0].verdict is Verdict.MATCH:
        yield from found
        return
    own = list(_compared(actual, tie.continued, limits))
    yield _read(own[0], tie.step, actual.retraced)
    astray = tie.astray(expected)
    for one, follows in zip(found, own, strict=True):
        yield one if one.verdict is not Verdict.WRONG else _after_tie(one, follows, tie.step, astray)


def _compared(actual: SubjectResult, expected: Output, limits: Tolerances) -> Iterator[Comparison]:
    text = compare_text(actual.text, expected.text, limits.text)
    is_wrong = text.verdict is Verdict.WRONG
    yield replace(text, measured=f"{_limit(actual, expected)}{text.measured}") if is_wrong else text
    yield compare_spans(actual.spans, expected.spans, limits)
    yield compare_boxes(actual.spans, expected.spans, limits)
    if actual.mmd is None:
        yield not_compared(MMD, Reason.NOT_OFFERED)
    else:
        yield compare_content(MMD, actual.mmd, expected.mmd, limits.text)
    if actual.artefacts is None:
        yield not_compared("artefacts", Reason.NOT_OFFERED)
    else:
        yield compare_artefacts(actual.artefacts, expected.artefacts, limits)


def _limit(actual: SubjectResult | Output, expected: Output) -> str:
    if getattr(actual, "ended_by", "") != "length":
        return ""
    own = "its own" if len(actual.text) < len(expected.text) else "the"
    return f"stopped at {own} limit of tokens, as the server says (finish_reason: length); "


def _read(own: Comparison, step: int, retraced: str) -> Comparison:
    is_wrong = own.verdict is Verdict.WRONG
    agrees = "disagrees" if is_wrong else "agrees"
    measured = f"{agrees} with the subject's own steps, which leave the reference's at a tie at step {step}"
    return Comparison("read", own.verdict, f"{measured}; {retraced}" if is_wrong and retraced else measured)


def _after_tie(comparison: Comparison, own: Comparison, step: int, astray: Sequence[TextDefect]) -> Comparison:
    if own.passes and not astray:
        measured = f"follows the tie at step {step}: {comparison.measured}"
        return replace(comparison, verdict=Verdict.TIE_FLIP, measured=measured)
    why = "no longer reads this page" if own.passes else "is not what the subject's own steps give"
    measured = f"{why} after the tie at step {step}: {comparison.measured}"
    if not own.passes:
        return replace(comparison, measured=measured)
    signs = comparison.signs | {one.sign for one in astray}
    return replace(comparison, measured=measured, details=(*map(str, astray), *comparison.details), signs=signs)
