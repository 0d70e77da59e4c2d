"""Search for a mistake: an engine without one computes the stage that broke again under each known mistake."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

from torch import Tensor

from pytest_dsocr.contract import COMPARED, GRID
from pytest_dsocr.contract import PIXELS as PIXELS_OF
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.catalogue import groups
from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.decoding import explain_best, explain_choices, explain_steps, explain_written
from pytest_dsocr.explain.hints import TENSORS
from pytest_dsocr.explain.mistake import Mistake, StagePart, in_one_block
from pytest_dsocr.explain.question import BY_TEXT, Question
from pytest_dsocr.explain.recompute import Clean, Segment, inputs_under
from pytest_dsocr.explain.rows import Group
from pytest_dsocr.explain.search import NOT, NOTHING, Search, SearchResult, distance, distance_of_first
from pytest_dsocr.explain.texts import explain_texts
from pytest_dsocr.explain.together import added, together
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.names import ComparisonName, TensorName
from pytest_dsocr.records.packing import unpack_inputs
from pytest_dsocr.records.reference_result import InputsDigest, Seam

SCREENED_FROM = 2
"""Number of views from which the first is computed alone: a mistake that does not come nearer there is left."""
SCREEN = 5
"""Factor by which a mistake must reduce the error of the first view's sampled values."""
NEAR_OF_PIXELS = 2e-3
"""Largest error of reproduced pixels, which are rounded to bfloat16."""


def explain(engine: Engine[Any], case: Case, question: Question, clean_of: Callable[[Case], Clean]) -> SearchResult:
    """Search for the mistake that explains the divergence; if none is known of its kind, nothing is tried."""
    search, what = Search(question, Deadline(question.budget_s)), question.what
    if what in COMPARED:
        return of_inputs(engine, case, search)
    if what in BY_TEXT:
        return explain_texts(engine, search)
    if what == "result.mmd":
        return explain_written(engine.family, search)
    clean = clean_of(case)
    if what == "logits":
        return explain_steps(clean, search)
    if what == "tokens":
        return explain_choices(clean, search)
    if what == "prefill_best" and question.best:
        return explain_best(clean, search)
    if ComparisonName.parse(what).stage in TENSORS and what in question.seams:
        return of_seam(clean, search)
    return NOTHING


def of_inputs(engine: Engine[Any], case: Case, search: Search, base: Mistake | None = None) -> SearchResult:
    """Search among the mistakes of pixels and prompts; the result is the one that makes most inputs equal.

    Args:
        base: a mistake of the inputs that is known already.
    """
    maker, what = _Inputs(engine, case, search.question, base), search.question.what
    order = ("pixels", "prompt") if what in (*PIXELS_OF, GRID) else ("prompt", "pixels")
    candidates = chain(*(groups(engine.family)[name] for name in order))
    near = NEAR_OF_PIXELS if what in PIXELS_OF else 0.0
    answer = search.among(candidates, maker.measure, maker.without, near, together)
    if not answer.found:
        return answer
    most = max(len(maker.equal[one]) for one in answer.found)
    best = [one for one in answer.found if len(maker.equal[one]) == most]
    left = [name for name in COMPARED if name not in maker.equal[best[0]] and name != what]
    beyond = NOT + ", ".join(left) if left else "all of the inputs"
    return answer.keeping(best, beyond if answer.explained else "")


class _Inputs:
    """Inputs of a case, made under mistakes and compared with the subject's."""

    def __init__(self, engine: Engine[Any], case: Case, question: Question, base: Mistake | None) -> None:
        assert question.inputs is not None
        self.engine, self.case, self.what, self.base = engine, case, question.what, base
        self.actual, self.seam = unpack_inputs(question.inputs, {}), question.seams.get(question.what)
        self.equal: dict[str, frozenset[str]] = {}
        """Names of the tensors that equal the subject's, by mistake."""
        clean = self._made(None)
        self.screened = self._sampled(clean[self.what])
        self.without = self._apart(clean[self.what])

    def measure(self, one: Mistake) -> float:
        """Return the distance of the tensor that broke from the subject's."""
        self.equal[one.id] = frozenset({self.what})
        if self.what not in PIXELS_OF and self.what not in self._equal(self._made(one, brief=True)):
            return math.inf
        tensors = self._made(one)
        if self.screened and (sampled := self._sampled(tensors[self.what])) > self.screened / SCREEN:
            return sampled
        self.equal[one.id] = self._equal(tensors)
        return 0.0 if self.what in self.equal[one.id] else self._apart(tensors[self.what])

    def _made(self, one: Mistake | None, *, brief: bool = False) -> dict[str, Tensor]:
        """Make the inputs; if ``brief``, without pixels."""
        page = self.case.page if brief else None
        return inputs_under(self.engine, self.case, added(self.base, one), page=page).tensors

    def _equal(self, tensors: dict[str, Tensor]) -> frozenset[str]:
        own = InputsDigest.of(tensors)
        return frozenset(name for name in COMPARED if getattr(own, name) == getattr(self.actual, name))

    def _sampled(self, made: Tensor) -> float:
        """Return the distance of the sampled values from the subject's; 0 for a tensor without pixels."""
        if self.seam is None:
            return 0.0
        return distance_of_first(self.seam, made) if self.seam.shape == tuple(made.shape) else math.inf

    def _apart(self, made: Tensor) -> float:
        return 1.0 if self.seam is None else distance(self.seam, Seam.of(made))


def of_seam(clean: Clean, search: Search) -> SearchResult:
    """Search among the mistakes of a stage for the one that gives the subject's tensor."""
    question, what = search.question, search.question.what
    actual, whole = question.seams[what], TensorName.parse(what).whole
    has_blocks = any(one.whole == whole != one for one in map(TensorName.parse, question.seams))
    segment = Segment(clean, what, has_blocks=has_blocks)
    first = partial(_first_view, segment, actual)
    without, screened = distance(actual, Seam.of(segment.compute(None))), first(None)

    def measure(one: Mistake) -> float:
        if screened and (nearer := first(one)) is not None and nearer > screened / SCREEN:
            return math.inf
        return distance(actual, Seam.of(segment.compute(one.plant)))

    candidates: Sequence[Mistake] = _candidates(groups(clean.engine.family)[segment.stage], what, has_blocks)
    if not (segment.stops or has_blocks):
        candidates = [*candidates, *in_one_block(candidates, clean.engine)]
    pairs = dict[str, Mistake]()

    def join(one: Mistake, other: Mistake) -> Mistake | None:
        return pairs.setdefault(both.id, both) if (both := together(one, other)) else None

    answer = search.among(candidates, measure, without, join=join)
    if not answer.explained:
        return answer
    known = chain(candidates, pairs.values())
    beyond = {one.id: _beyond(segment, question, one) for one in known if one.id in answer.found}
    best = [one for one in answer.found if not beyond[one].startswith(NOT)] or answer.found
    return answer.keeping(best, beyond[best[0]])


def _first_view(segment: Segment, actual: Seam, one: Mistake | None) -> float | None:
    """Return how far the values sampled of the first view, or of its first windows, are from the subject's."""
    plant = None if one is None else one.plant
    if segment.has_windows and (one is None or one.part == "block"):
        return distance_of_first(actual, segment.first_rows(plant))
    if not (segment.view and segment.all_blocks) or actual.shape[0] < SCREENED_FROM:
        return None
    return distance_of_first(actual, segment.compute(plant, 1))


def _candidates(group: Group, what: str, has_blocks: bool) -> Sequence[Mistake]:
    """Return the mistakes that may be between the last right seam and this one."""
    depth = TensorName.parse(what).block
    parts: tuple[StagePart, ...] = ("front", "block", "wide", "back")
    if depth is not None:
        parts = ("block", "wide") if depth else ("front", "block", "wide")
    elif has_blocks:
        parts = ("back",)
    return group.of(*parts)


def _beyond(segment: Segment, question: Question, one: Mistake) -> str:
    """Return which later seams the same mistake explains, or the first that it does not."""
    if not segment.stops:
        return ""
    failed = ""
    for alone in (False, True):
        seams = dict(segment.later(one.plant, alone=alone))
        apart = [(name, distance(question.seams[name], seam)) for name, seam in seams.items() if name in question.seams]
        wrong = [name for name, error in apart if error > question.near]
        if apart and not wrong:
            which = "in this block alone, " if alone and len(segment.all_blocks) > segment.last else ""
            return f"{which}all of {segment.stage} after it"
        failed = failed or next(iter(wrong), "")
    return f"{NOT}{failed}" if failed else ""
