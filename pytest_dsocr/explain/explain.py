"""A question answered: the stage that broke is computed again under each mistake that may be about it.

In the process that explains, by an engine without a mistake.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self

import msgspec
import torch
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract import COMPARED, GRID
from pytest_dsocr.contract import PIXELS as PIXELS_OF
from pytest_dsocr.engine.checkpoint import device_named, dtype_named, resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.model import weights_bytes
from pytest_dsocr.explain.catalogue import groups
from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.decoding import explain_best, explain_steps, explain_written
from pytest_dsocr.explain.mistake import Group, Mistake, StagePart, in_one_block
from pytest_dsocr.explain.question import NOT, OF_TEXT, Question, SearchResult, search
from pytest_dsocr.explain.recompute import Clean, Segment, inputs_under
from pytest_dsocr.explain.texts import explain_texts
from pytest_dsocr.models import STAGES
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.names import ComparisonName, TensorName
from pytest_dsocr.records.packing import unpack_inputs
from pytest_dsocr.records.reference_result import InputsDigest, Seam
from pytest_dsocr.reference.engine import EngineRuntime
from pytest_dsocr.reference.protocol import unpack_case

NOTHING = SearchResult(0, 0, 0.0)
SCREENED_FROM = 2
"""Views of which one is computed at first: what changes nothing that the subject changed is not computed further."""
SCREEN = 5
"""So many times nearer than without it must the first view's sampled values be."""
NEAR_OF_PIXELS = 2e-3
"""Of pixels, which are rounded to bfloat16."""
WITH_SEAMS = tuple(stage.name for stage in STAGES if stage.seams)


def explain(engine: Engine[Any], case: Case, question: Question) -> SearchResult:
    """Search for what explains the divergence; an answer without tries where nothing is known to try."""
    deadline = Deadline(question.budget_s)
    stage = ComparisonName.parse(question.what).stage
    if question.what in COMPARED:
        return _of_inputs(engine, case, question, deadline)
    if question.what in OF_TEXT:
        return explain_texts(engine, question, deadline)
    if question.what == "result.mmd":
        return explain_written(engine.family, question, deadline)
    clean = Clean(engine, engine.prepare(case.page, prompt=case.prompt, preset=case.preset))
    if question.what in ("logits", "tokens"):
        return explain_steps(clean, question, deadline)
    if question.what == "prefill_best":
        return explain_best(clean, question, deadline)
    if stage in WITH_SEAMS and question.what in question.seams:
        return _of_seam(clean, question, deadline)
    return NOTHING


def _of_inputs(engine: Engine[Any], case: Case, question: Question, deadline: Deadline) -> SearchResult:
    """Search among pixels and prompts; what makes most of the inputs equal is the answer."""
    maker = _Inputs(engine, case, question)
    order = ("pixels", "prompt") if question.what in (*PIXELS_OF, GRID) else ("prompt", "pixels")
    candidates = chain(*(groups(engine.family)[name] for name in order))
    near = NEAR_OF_PIXELS if question.what in PIXELS_OF else 0.0
    answer, found = search(candidates, maker.measure, maker.without, question, deadline, near=near)
    most = max((len(maker.equal[one.id]) for one in found), default=0)
    best = [one for one in found if len(maker.equal[one.id]) == most]
    answer = replace(answer, found=tuple(one.id for one in best), words=tuple(one.words for one in best))
    if not answer.explained:
        return answer
    left = [name for name in COMPARED if name not in maker.equal[best[0].id] and name != question.what]
    return replace(answer, beyond=NOT + ", ".join(left) if left else "all of the inputs")


class _Inputs:
    """A case's inputs, made under mistakes and compared with the subject's."""

    def __init__(self, engine: Engine[Any], case: Case, question: Question) -> None:
        assert question.inputs is not None
        self.engine, self.case, self.what = engine, case, question.what
        self.actual, self.seam = unpack_inputs(question.inputs, {}), question.seams.get(question.what)
        self.equal: dict[str, frozenset[str]] = {}
        """By mistake, which of the five tensors are the subject's."""
        clean = self._made(None)
        self.screened = self._sampled(clean[self.what])
        self.without = self._apart(clean[self.what])

    def measure(self, one: Mistake) -> float:
        """Return how far the tensor that broke is from the subject's."""
        self.equal[one.id] = frozenset({self.what})
        if self.what not in PIXELS_OF and self.what not in self._equal(self._made(one, brief=True)):
            return math.inf
        tensors = self._made(one)
        if self.screened and (sampled := self._sampled(tensors[self.what])) > self.screened / SCREEN:
            return sampled
        self.equal[one.id] = self._equal(tensors)
        return 0.0 if self.what in self.equal[one.id] else self._apart(tensors[self.what])

    def _made(self, one: Mistake | None, *, brief: bool = False) -> dict[str, Tensor]:
        """Make the inputs; briefly without pixels."""
        return inputs_under(self.engine, self.case, one, page=self.case.page if brief else None).tensors

    def _equal(self, tensors: dict[str, Tensor]) -> frozenset[str]:
        own = InputsDigest.of(tensors)
        return frozenset(name for name in COMPARED if getattr(own, name) == getattr(self.actual, name))

    def _sampled(self, made: Tensor) -> float:
        """Return how far the values sampled are from the subject's; 0 of what is no pixels."""
        if self.seam is None:
            return 0.0
        return self.seam.distance_of_first(made) if self.seam.shape == tuple(made.shape) else math.inf

    def _apart(self, made: Tensor) -> float:
        return 1.0 if self.seam is None else self.seam.distance(Seam.of(made))


def _of_seam(clean: Clean, question: Question, deadline: Deadline) -> SearchResult:
    actual, what = question.seams[question.what], question.what
    tensors, whole = map(TensorName.parse, question.seams), TensorName.parse(what).whole
    has_blocks = any(one.whole == whole != one for one in tensors)
    segment = Segment(clean, what, has_blocks=has_blocks)
    first = partial(_first_view, segment, question)
    own = segment.compute(None)
    without, screened = actual.distance(Seam.of(own)), first(None)

    def measure(one: Mistake) -> float:
        if screened and (nearer := first(one)) is not None and nearer > screened / SCREEN:
            return math.inf
        return actual.distance(Seam.of(segment.compute(one.plant)))

    group = groups(clean.engine.family)[segment.stage]
    candidates = _candidates(group, what, has_blocks)
    if not (segment.stops or has_blocks):
        candidates = [*candidates, *in_one_block(candidates, clean.engine)]
    answer, found = search(candidates, measure, without, question, deadline)
    if not answer.explained:
        return answer
    beyond = {one.id: _behind(segment, question, one) for one in found}
    best = [one for one in found if not beyond[one.id].startswith(NOT)] or found
    ids, words = tuple(one.id for one in best), tuple(one.words for one in best)
    return replace(answer, found=ids, words=words, beyond=beyond[best[0].id])


def _first_view(segment: Segment, question: Question, one: Mistake | None) -> float | None:
    """Return how far the values sampled of the first view, or of its first windows, are from the subject's."""
    actual = question.seams[question.what]
    plant = None if one is None else one.plant
    if segment.has_windows and (one is None or one.part == "block"):
        return actual.distance_of_first(segment.first_rows(plant))
    if not (segment.view and segment.all_blocks) or actual.shape[0] < SCREENED_FROM:
        return None
    return actual.distance_of_first(segment.compute(plant, 1))


def _candidates(group: Group, what: str, has_blocks: bool) -> Sequence[Mistake]:
    """Return those that may change what lies between the seam in front and this one."""
    depth = TensorName.parse(what).block
    parts: tuple[StagePart, ...] = ("front", "block", "wide", "back")
    if depth is not None:
        parts = ("block", "wide") if depth else ("front", "block", "wide")
    elif has_blocks:
        parts = ("back",)
    return group.of(*parts)


def _behind(segment: Segment, question: Question, one: Mistake) -> str:
    """Say whether the same mistake explains the rest of the stage as well."""
    if not segment.stops:
        return ""
    failed = ""
    for alone in (False, True):
        seams = dict(segment.behind(one.plant, alone=alone))
        apart = [(name, question.seams[name].distance(seam)) for name, seam in seams.items() if name in question.seams]
        wrong = [name for name, distance in apart if distance > question.near]
        if apart and not wrong:
            which = "in this block alone, " if alone and len(segment.all_blocks) > segment.last else ""
            return f"{which}all of {segment.stage} behind it"
        failed = failed or next(iter(wrong), "")
    return f"{NOT}{failed}" if failed else ""


ALLOWANCE = 1.5
"""Of the weights' bytes: what is computed takes memory as well."""
MEMORY = Path("/proc/meminfo")
GIB = 2**30


class ExplainingRuntime(EngineRuntime):
    """An engine as :class:`~pytest_dsocr.reference.engine.EngineRuntime` loads it, which explains."""

    @classmethod
    def load(cls, checkpoint: str, *, device: str = "cpu", dtype: str = "float32", **options: Any) -> Self:
        """Load it as an engine is loaded; raise ``DsocrError`` where there is no memory for one more."""
        check_memory(checkpoint, device, dtype)
        return super().load(checkpoint, device=device, dtype=dtype, **options)

    def explain(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a packed :class:`~pytest_dsocr.explain.question.Question`."""
        asked = msgspec.convert(question, Question, str_keys=True)
        with torch.no_grad():
            answer = explain(self.subject.engine, unpack_case(asked.page.case), asked)
        packed: dict[str, Any] = msgspec.to_builtins(answer)
        return packed


def check_memory(checkpoint: str, device: str, dtype: str) -> None:
    """Raise ``DsocrError`` where the engine would take more than is free on the device, or on a CPU of the host."""
    needed = ALLOWANCE * weights_bytes(resolve(checkpoint).architecture, dtype_named(dtype))
    free = free_bytes(device_named(device))
    if free is not None and free < needed:
        raise DsocrError(
            f"the engine beside it needs {needed / GIB:.1f} GiB, and {free / GIB:.1f} are free on {device}; give a "
            "smaller checkpoint, or --dsocr-explain=0"
        )


def free_bytes(device: torch.device) -> int | None:
    """Return the bytes that are free; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    lines = MEMORY.read_text(encoding="utf-8").splitlines() if MEMORY.exists() else []
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)
