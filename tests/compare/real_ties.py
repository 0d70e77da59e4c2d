"""Real ties: the vendor's own runs of one page in bf16 on a GPU and in float32 on a CPU, each held against the other.

Nothing is computed here: both are recordings, made under Pillow 12, and no pixel of theirs is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tokens import is_tie
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Comparison
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.contract.mmd import to_mmd
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.observation.answer import Answer, ForcedStep
from pytest_dsocr.observation.level import Level
from pytest_dsocr.observation.observation import Observation, Output, SpanSeen
from pytest_dsocr.observation.provenance import Key
from pytest_dsocr.reference.recording import Recording
from tests.compare.made import along
from tests.recordings import FOLDER, find_recording

ON_CPU, ON_GPU = ("cpu", "float32", "eager"), ("nvidia-h200", "bfloat16", "eager")
UNDER_PILLOW_12 = "4e7a837ab1a41daf"
"""How it resizes; see :mod:`pytest_dsocr.contract.image`."""
LIMITS = tolerances("bfloat16", "float32", same_key=False)


@dataclass(frozen=True, eq=False)
class RealTie:
    """A case of which one run parts from the other over a tie."""

    name: str
    step: int
    actual: Observation
    expected: Observation

    def answer(self, output: Output | None = None, continued: Output | None = None) -> Answer:
        """What the one run would say of the other's; ``output`` in the place of what it reads."""
        output, forced = output or self.actual.output, list(along(self.expected.steps))
        forced[self.step] = _at(self.actual, self.step)
        answer = Answer(self.name, Level.STAGES, output.text, output.spans, output.mmd, output.artefacts)
        return replace(
            answer,
            inputs=self.expected.inputs,
            seams=self.expected.seams,
            prefill_best=self.expected.prefill_best,
            forced=tuple(forced),
            continued=continued or self.actual.output,
        )

    def compared(self, output: Output | None = None, continued: Output | None = None) -> dict[str, Comparison]:
        """Hold it against the other."""
        found = compare_observations(self.answer(output, continued), self.expected, LIMITS)
        return {one.what: one for one in found}


@cache
def real_ties(checkpoint: str, actual: tuple[str, str, str], expected: tuple[str, str, str]) -> dict[str, RealTie]:
    """Give every case of a checkpoint in which ``actual`` parts from ``expected`` by a tie, by the case's id."""
    weights = resolve(checkpoint).sha256
    keys = (Key(checkpoint, *side, weights) for side in (actual, expected))
    return {tie.name: tie for tie in _found(*(find_recording(FOLDER, key, UNDER_PILLOW_12) for key in keys))}


def said(text: str) -> Output:
    """Make an output of a text; its files are another's matter."""
    spans = tuple(SpanSeen(span.label, span.boxes) for span in parse(text).spans)
    return Output(text, spans, to_mmd(text), {})


def _found(actual: Recording, expected: Recording) -> Iterator[RealTie]:
    for case_id, recorded in expected.cases.items():
        a, b = actual.cases[case_id].observation, recorded.observation
        pairs = enumerate(zip(a.token_ids, b.token_ids, strict=False))
        step = next((k for k, (one, other) in pairs if one != other), None)
        if step is not None and is_tie(_at(a, step), b.steps[step], LIMITS):
            yield RealTie(case_id, step, a, b)


def _at(of: Observation, step: int) -> ForcedStep:
    token, best = of.steps[step]
    return ForcedStep(token, best, best.logits)
