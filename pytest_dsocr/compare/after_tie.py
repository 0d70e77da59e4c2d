"""What is accepted after a tie: the output of the subject's own steps, as long as it still reads the same page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from rapidfuzz.distance import Levenshtein, Prefix

from pytest_dsocr.compare.boxes import pair_up
from pytest_dsocr.compare.degeneration import Astray, degenerations
from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.contract.markup import UNITS
from pytest_dsocr.observation.observation import Output, Step

SURE = 0.5
"""What the best token of a step has of the probability of its best five, at the median step, where a model reads: 0.99
and more in the recordings of ``mini``, and at most 0.26 in those of random weights."""
EDITS, LENGTH, FEW_CHARACTERS = 0.5, 0.25, 24
"""Edits after a tie, and characters more or fewer, of the longer rest's; so few are nothing at a page's end."""
BOXES, FEW_BOXES, IN_PLACE = 1 / 3, 1, 0.1
"""Boxes without a partner, of all of the side that has more; one is nothing, and a partner is no further away than
that, in pages."""
# Measured on some 230 ties of `mini`, bf16 against float32 and eager against sdpa and flash attention, on CPUs and on
# an H200: half of them change a number or two; the worst has 0.32 edits, 0.12 in length, and 3 of 11 boxes. Of the 496
# pairs of shipped pages none is as near but those few that are the same words in two faces (`ci/ties.py` at f393cf6).
AMISS = frozenset(
    (Sign.EMPTINESS, Sign.REPETITION, Sign.BYTE_MARKS, Sign.BROKEN_CHARACTERS, Sign.MARKUP, Sign.ECHO),
)
"""Degenerations that a tie does not cause. Where a text ends, or the only kind of difference in it, proves nothing."""


@dataclass(frozen=True)
class Tie:
    """The first step at which a tie made the subject choose another token, and what its own steps give from there."""

    step: int
    continued: Output
    sure: bool
    """Whether the reference model is sure of its tokens. With random weights its text is noise."""

    def astray(self, theirs: Output) -> tuple[Astray, ...]:
        """Say why the output of the steps is no longer a reading of the reference's page."""
        return tuple(_astray(self.continued, theirs)) if self.sure else ()


@dataclass(frozen=True)
class Nearness:
    """How near two readings are that differ because of a tie."""

    edits: int
    """Edit distance of the two rests, which begin at the first character that differs."""
    longer: int
    """How many characters one rest is longer than the other."""
    rest: int
    """Characters of the longer rest."""
    boxes: int
    """Number of boxes of the side that has more."""
    alone: int
    """Those of them without a partner of their label in their place, or as near to it as :data:`IN_PLACE`."""

    @classmethod
    def of(cls, mine: Output, theirs: Output) -> Nearness:
        """Measure two outputs."""
        at = Prefix.similarity(mine.text, theirs.text)
        rests = mine.text[at:], theirs.text[at:]
        pairs = pair_up(mine.spans, theirs.spans)
        placed = zip(pairs.apart, pairs.both, strict=True)
        paired = sum(apart <= IN_PLACE * UNITS and a.label == b.label for apart, (a, b) in placed)
        boxes = max(len(pairs.mine), len(pairs.theirs))
        shorter, longer = sorted(map(len, rests))
        return cls(Levenshtein.distance(*rests), longer - shorter, longer, boxes, boxes - paired)


def is_sure(steps: Sequence[Step]) -> bool:
    """Say whether a model is sure of most tokens that it chose, as a model that can read is."""
    return bool(steps) and median(map(_share, steps)) > SURE


def _share(step: Step) -> float:
    """Give the share of the best token in the probability of a step's recorded best."""
    first = max(step.best.logits, default=math.nan)
    return 1 / sum(math.exp(logit - first) for logit in step.best.logits) if math.isfinite(first) else 0.0


def _astray(mine: Output, theirs: Output) -> Iterator[Astray]:
    near = Nearness.of(mine, theirs)
    if near.edits > max(FEW_CHARACTERS, EDITS * near.rest):
        how = f"{near.edits} edits of the {near.rest} characters after it (allowed {EDITS:.0%})"
        yield Astray(Sign.UNRELATED, how)
    if near.longer > max(FEW_CHARACTERS, LENGTH * near.rest):
        how = f"{len(mine.text)} characters, the reference has {len(theirs.text)} (allowed {LENGTH:.0%} apart)"
        yield Astray(Sign.LENGTH, how)
    if near.alone > max(FEW_BOXES, BOXES * near.boxes):
        yield Astray(Sign.ELSEWHERE, f"{near.alone} of {near.boxes} boxes have no partner (allowed {BOXES:.0%})")
    yield from (one for one in degenerations(mine.text, theirs.text) if one.sign in AMISS)
