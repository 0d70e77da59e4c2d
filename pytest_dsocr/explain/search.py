"""The search: mistakes are tried one after the other within a budget, and the nearest to the subject is the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.mistake import Mistake
from pytest_dsocr.explain.question import Question
from pytest_dsocr.records.reference_result import Seam
from pytest_dsocr.records.summing import sample_positions

NOT = "not "
"""Start of :attr:`SearchResult.beyond` if the mistake does not explain the next tensors."""
TIMES_NEARER = 100
"""Factor by which a mistake that explains must reduce the error."""
SOMEWHAT_NEARER = 10
"""Factor by which a mistake must reduce the error if another mistake is left: of an error above 1, to a tenth."""
AS_NEAR = 3
"""Factor between errors that are not told apart: mistakes within it of the nearest are named as well."""
EXACT = 1e-7
"""Error below which float32 cannot tell two mistakes apart."""

Measure = Callable[[Mistake], float]
"""Return the distance of the engine with a mistake from the subject; 0 only if every bit is equal."""


def distance(actual: Seam, made: Seam) -> float:
    """Return the norm of the difference of two tensors over that of ``made``; 0 only if every bit is equal."""
    if (actual.shape, actual.dtype, actual.sha256) == (made.shape, made.dtype, made.sha256):
        return 0.0
    if actual.shape != made.shape:
        return math.inf
    apart = float((actual.sketch.double() - made.sketch.double()).norm()) / (made.norm or 1.0)
    return apart if math.isfinite(apart) else math.inf


def distance_of_first(actual: Seam, first: Tensor) -> float:
    """Return the distance of the sampled values that lie in the ``first`` views, relative to these."""
    places = torch.from_numpy(sample_positions(math.prod(actual.shape)))
    inside = places < first.numel()
    own = first.detach().flatten()[places[inside].to(first.device)].double().cpu()
    apart = float((actual.sample.double()[inside] - own).norm() / own.norm().clamp_min(1e-30))
    return apart if math.isfinite(apart) else math.inf


@dataclass(frozen=True)
class SearchResult:
    """Result of a search among mistakes."""

    tried: int
    """Number of mistakes that were computed and compared."""
    untried: int
    """Number of mistakes that the time did not allow, now and before."""
    without: float
    """Relative error of the engine without any mistake."""
    found: tuple[str, ...] = ()
    """Ids of the mistakes that explain the divergence; several if they have the same effect."""
    words: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    """Groups of the mistakes in ``found``."""
    error: float = math.inf
    """Relative error with the mistake."""
    explained: bool = False
    """Whether the divergence is reproduced; otherwise the engine only comes nearer to the subject."""
    raised: tuple[str, ...] = ()
    """Words of the mistakes that could not be computed."""
    done: tuple[str, ...] = ()
    """Ids of all mistakes that were tried, also of those that could not be computed."""
    refuted: tuple[str, ...] = ()
    """Ids of the mistakes that were computed and are not in ``found``."""
    places: int | None = None
    """Number of places where a text or choices leave the engine's; None for tensors."""
    unpaired: int = 0
    """Number of pairs of the stage's mistakes that were not tried, if a pair was found; it is no proof then."""
    beyond: str = ""
    """The next tensors that the mistake also explains, or :data:`NOT` and the one that it does not."""

    def keeping(self, ids: Collection[str], beyond: str = "") -> SearchResult:
        """Return the result with only these of its mistakes, and with what they explain beyond it."""
        kept = [row for row in zip(self.found, self.words, self.groups, strict=True) if row[0] in ids]
        found, words, groups = zip(*kept, strict=True)
        refuted = (*self.refuted, *(one for one in self.found if one not in found))
        return replace(self, found=found, words=words, groups=groups, refuted=refuted, beyond=beyond)

    def paired(self, one: Mistake) -> SearchResult:
        """Return the result for pairs with a mistake that the engine had meanwhile. Other pairs were not tried."""
        found = tuple(f"{one.id}+{other.partition('.')[2]}" for other in self.found)
        words = tuple(f"{one.words}, and {other}" for other in self.words)
        return replace(self, found=found, words=words, unpaired=1)


class NextWrong(NamedTuple):
    """A comparison that is wrong on its own, and the search for its cause."""

    what: str
    answer: SearchResult
    needs: tuple[str, ...] = ()
    """Ids of the causes before it in the same stage, which the engine had meanwhile."""
    left: str = ""
    """Measured difference that is left if the causes before it are undone."""


NEAREST = 2
"""Number of mistakes that are tried with each other one, if none alone reproduces the divergence."""
Join = Callable[[Mistake, Mistake], Mistake | None]
"""Return two mistakes as one, or None if they cannot be."""
NOTHING = SearchResult(0, 0, 0.0)
"""Result if no mistake of this kind is known."""


@dataclass(frozen=True)
class Search:
    """Search for the mistake that answers a question.

    Args:
        question: decides which candidates are tried.
        deadline: end of the search; no candidate is started after it.
    """

    question: Question
    deadline: Deadline

    def among(
        self,
        candidates: Iterable[Mistake],
        measure: Measure,
        without: float,
        near: float | None = None,
        join: Join | None = None,
    ) -> SearchResult:
        """Try the candidates in order. After one that is equal to the bit, try its kind next.

        Args:
            candidates: mistakes that may explain the divergence.
            measure: distance of each; a candidate for which it raises does not count as tried.
            without: distance of the engine without a mistake.
            near: largest distance that counts as reproduced; the question's own by default.
            join: makes two mistakes one; None to try no pairs.
        """
        every, found, raised, done = [*candidates], list[tuple[float, Mistake]](), list[str](), list[str]()
        left = [*self._left(every)]
        while left and without > 0 and not self.deadline.is_over:
            one = left.pop(0)
            done.append(one.id)
            try:
                apart = measure(one)
            except Exception:  # a mistake may not fit the sizes of this checkpoint
                raised.append(one.words)
                continue
            found.append((apart if math.isfinite(apart) else math.inf, one))
            if apart == 0.0:  # first come those that explain earlier pages, then the kind of this one
                alike = (one.group, one.kind)
                left.sort(key=lambda other: (other.id not in self.question.only, (other.group, other.kind) != alike))
        tried = {*(self.question.done or ()), *done}
        untried = sum(one.id not in tried for one in every)
        computed = tuple(one.id for _, one in found)
        answer = SearchResult(len(found), untried, without, raised=tuple(raised), done=tuple(done), refuted=computed)
        limit = min(self.question.near if near is None else near, without / TIMES_NEARER)
        least = min((apart for apart, _ in found), default=math.inf)
        if join and least > limit and without > 0 and (pairs := [*_pairs(found, without, join)]):
            paired = [*self._paired(pairs, measure)]
            least_paired = min((apart for apart, _ in paired), default=math.inf)
            if least_paired <= limit:
                single, found, least = found, paired, least_paired
                every_pair = sum(bool(join(a, b) or join(b, a)) for (_, a), (_, b) in combinations(single, 2))
                answer = replace(answer, unpaired=every_pair - len(paired))
        if least > min(without, 1.0) / SOMEWHAT_NEARER:
            return answer
        same = [one for apart, one in found if apart <= max(AS_NEAR * least, EXACT if least else 0.0)]
        ids, words, groups = zip(*((one.id, one.words, one.group) for one in same), strict=True)
        others = tuple(one for one in computed if one not in ids)
        named = replace(answer, found=ids, words=words, groups=groups, refuted=others)
        return replace(named, error=least, explained=least <= limit)

    def _paired(self, pairs: Iterable[Mistake], measure: Measure) -> Iterator[tuple[float, Mistake]]:
        """Yield the distances of pairs; a pair that cannot be computed is infinitely far."""
        for both in pairs:
            if self.deadline.is_over:
                return
            try:
                yield measure(both), both
            except Exception:  # two mistakes may not fit each other
                yield math.inf, both

    def _left(self, every: Iterable[Mistake]) -> Iterator[Mistake]:
        """Yield the candidates to try, each once: first those that explain the earlier pages."""
        only, done = self.question.only, self.question.done
        yield from (one for one in every if one.id in only)
        if done is not None:
            known = {*done, *only}
            yield from (one for one in every if one.id not in known)


def _pairs(found: Iterable[tuple[float, Mistake]], without: float, join: Join) -> Iterator[Mistake]:
    """Yield the nearest mistakes with each other one; of those that are all equally far, each with each."""
    by_distance = sorted(found, key=lambda pair: pair[0])
    nearer = [one for apart, one in by_distance if apart < without][:NEAREST]
    every, seen = [one for _, one in by_distance], set[frozenset[str]]()
    for one in nearer or [one for apart, one in by_distance if apart == math.inf]:
        for other in every:
            both = None if {one.id, other.id} in seen else join(one, other)
            if both:
                seen.add(frozenset({one.id, other.id}))
                yield both
