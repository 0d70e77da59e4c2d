"""Candidates tried one after the other within a budget; the nearest to the subject's tensor is the answer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from pytest_dsocr.explain.mistake import Mistake
from pytest_dsocr.explain.question import Question, SearchResult

TIMES_NEARER = 100
"""So many times nearer than without it does a mistake come that explains."""
SOMEWHAT_NEARER = 10
"""So many times where another mistake is left."""
AS_NEAR = 3
"""What comes as near as this many times the nearest may be the mistake as well."""
EXACT = 1e-7
"""Below it float32 cannot tell one from the other."""

Measure = Callable[[Mistake], float]
"""Gives how far the session with a mistake is from the subject, 0 where every bit is equal."""


def search(
    candidates: Iterable[Mistake],
    measure: Measure,
    without: float,
    question: Question,
    deadline_s: float,
    *,
    near: float | None = None,
    goes_on: Callable[[Mistake], bool] = lambda one: False,
) -> tuple[SearchResult, list[Mistake]]:
    """Try the candidates in their order, up to the first that is equal to the bit.

    Args:
        candidates: what may be the mistake.
        measure: how far each is from the subject; a candidate that it raises for does not count as tried.
        without: how far the session is without any mistake.
        question: which of the candidates to try.
        deadline_s: of ``time.monotonic``; no candidate is started after it.
        near: up to this distance the subject's tensor counts as reproduced; the question's if left out.
        goes_on: whether to go on behind one that is equal to the bit.

    Returns:
        The answer, without what follows of it, and the candidates that it names.
    """
    left, found, raised, done = question.left(candidates), list[tuple[float, Mistake]](), list[str](), list[str]()
    of = len(left)
    while left and without > 0 and time.monotonic() <= deadline_s:
        one = left.pop(0)
        done.append(one.id)
        try:
            distance = measure(one)
        except Exception:  # a mistake may fit this checkpoint's sizes as little as a port's would
            raised.append(one.words)
            continue
        found.append((distance if math.isfinite(distance) else math.inf, one))
        if distance == 0.0:
            if not goes_on(one):
                break
            left.sort(key=partial(_rank, question, one))
    kinds = {_kind(one) for distance, one in found if distance == 0.0}
    alike = sum(_kind(one) in kinds for one in left)
    answer = SearchResult(len(found), of, without, raised=tuple(raised), done=tuple(done), alike=alike)
    return _verdict(answer, found, question.near if near is None else near)


def _rank(question: Question, one: Mistake, other: Mistake) -> tuple[bool, bool]:
    """Order what is left: what explains the pages before, then what is like one that explains."""
    return other.id not in question.only, _kind(one) != _kind(other)


def _kind(one: Mistake) -> str:
    return one.id.partition("-")[0]


def _verdict(
    answer: SearchResult, found: Sequence[tuple[float, Mistake]], near: float
) -> tuple[SearchResult, list[Mistake]]:
    least = min((distance for distance, _ in found), default=math.inf)
    if least > answer.without / SOMEWHAT_NEARER or least == math.inf:
        return answer, []
    explained = least <= near and least <= answer.without / TIMES_NEARER
    alike = [one for distance, one in found if distance <= max(AS_NEAR * least, EXACT if least else 0.0)]
    ids, words = tuple(one.id for one in alike), tuple(one.words for one in alike)
    return replace(answer, found=ids, words=words, error=least, explained=explained), alike
