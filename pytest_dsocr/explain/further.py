"""Causes besides the first one. Each later stage is computed from the subject's own input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract import COMPARED
from pytest_dsocr.contract import PIXELS as PIXELS_OF
from pytest_dsocr.contract.artifacts import MMD
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.decoding import explain_choices, explain_written
from pytest_dsocr.explain.further_parts import OfInputs, OfStage, OfSteps, WrongPart
from pytest_dsocr.explain.own_inputs import explain_rest
from pytest_dsocr.explain.question import TEXT, Question, Trail
from pytest_dsocr.explain.recompute import Clean
from pytest_dsocr.explain.search import NOT, NextWrong, Search, SearchResult
from pytest_dsocr.models.spec import FUSION, PIXELS, PREFILL
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.names import ComparisonName, TensorName
from pytest_dsocr.records.reference_result import Seam

NO_FIT = (RuntimeError, IndexError, ValueError, DsocrError)
"""Errors of an engine that receives wrong inputs which do not fit its sizes."""


def next_wrong(right: Clean, case: Case, trail: Trail) -> Iterator[NextWrong]:
    """Yield what else is wrong on its own, in the order of the stages, each with the result of a search.

    All searches together have the time of one. The walk ends where the engine cannot take the subject's tensors.
    """
    walk = _Walk(right, case, trail, Deadline(trail.question.budget_s))
    with torch.no_grad():
        with suppress(*NO_FIT):
            yield from walk.stages()
        yield from walk.outputs()


@dataclass(frozen=True)
class _Walk:
    right: Clean
    case: Case
    trail: Trail
    deadline: Deadline

    def stages(self) -> Iterator[NextWrong]:
        """Yield what is wrong in the inputs, in the stages of vision, in the prompt and in the steps."""
        first, alone, engine = self.trail.question.what, self.trail.alone, self.right.engine
        if first in COMPARED:
            yield from self._causes(OfInputs(engine, self.case, self.trail.inputs))
        device = engine.model.device
        own = {TensorName.parse(name)[:2]: tensor.to(device) for name, tensor in self.trail.vision.items()}
        clean = Clean(engine, self._own_inputs, own)
        names, start = [one.name for one in engine.family.stages if one.seams], ComparisonName.parse(first).stage
        after = names if first in COMPARED else names[names.index(start) :] if start in names else []
        for name in after:
            if alone.get(name):
                continue
            if not _is_known(clean, name, own):
                return
            part = OfStage(clean, name, self._asked(name))
            found = [*self._causes(part)]
            is_explained = all(one.answer.explained for one in found)
            yield from found if is_explained or name != PREFILL or name in alone else ()
            if name == PREFILL and not part.wrong():
                steps = self._causes(OfSteps(part, self._asked("logits")))
                yield from (one for one in steps if one.answer.explained or (name in alone and not part.known))

    @property
    def _own_inputs(self) -> Inputs:
        """The subject's inputs."""
        return replace(self.right.inputs, **self.trail.inputs).to(self.right.engine.model.device)

    def outputs(self) -> Iterator[NextWrong]:
        """Yield outputs that do not follow from what they are made of: logits, inputs, or a text."""
        for what in self.trail.outputs:
            if what == TEXT:
                with suppress(*NO_FIT):
                    rest = explain_rest(self.right.engine, self._own_inputs, self._search(what))
                    yield from filter(None, [rest])
                continue
            search = self._search(what)
            is_file = what == MMD
            answer = (
                explain_written(self.right.engine.family, search) if is_file else explain_choices(self.right, search)
            )
            yield from [NextWrong(what, answer)] if is_file or answer.explained else ()

    def _search(self, what: str) -> Search:
        return Search(self._asked(what), self.deadline)

    def _asked(self, what: str) -> Question:
        """Return the question about another comparison, or about a stage with all its views."""
        stage, view, _ = TensorName.parse(what)
        every = ((TensorName.parse(name), name, one) for name, one in self.trail.question.seams.items())
        seams = {name: one for of, name, one in every if of.stage == stage and view in ("", of.view)}
        if what in PIXELS_OF:
            seams = {what: Seam.of(self.trail.inputs[what])}
        return replace(self.trail.question, what=what, seams=seams)

    def _causes(self, part: WrongPart) -> Iterator[NextWrong]:
        """Yield the causes of a part. A view that has one cause alone is explained before one that has several.

        A view that is right without the known causes has none, although these may make it wrong. A cause of one view
        says which other view it leaves wrong, and is no proof then.
        """
        first, found = self.trail.question.what, self.trail.found
        own = {TensorName.parse(what).whole for what in part.wrong()}
        done, missed, causes = set[tuple[str, int]](), dict[str, SearchResult](), list[NextWrong]()
        is_first = part.has(first)
        if is_first:
            done.add((first, 0))
            part.learn(first, found[:1])
            causes += self._paired(part)
        while wrong := [what for what in part.wrong() if TensorName.parse(what).whole in own]:
            for what in wrong:
                if (what, len(part.known)) in done:
                    continue
                done.add((what, len(part.known)))
                answer = part.search(what, self._search(what))
                if answer.explained:
                    causes.append(NextWrong(what, answer, tuple(one.id for one in part.known)))
                    part.learn(what, answer.found[:1])
                    break
                missed[what] = answer
            else:
                break
        yield from (_but_not(one, wrong) for one in causes)
        if found or not is_first:
            yield from (NextWrong(what, missed[what]) for what in wrong[:1] if what in missed)

    def _paired(self, part: WrongPart) -> Iterator[NextWrong]:
        """Yield the mistake that reproduces the first wrong values together with one that comes nearer to them."""
        first = self.trail.question.what
        part.learn(first, self.trail.partly[:1])
        if not part.known or self.trail.found:
            return
        answer, nearer = part.search(first, self._search(first)), part.known[0]
        if answer.explained:
            yield NextWrong(first, answer.paired(nearer.mistake))
            part.learn(first, answer.found[:1])
        else:
            part.known.clear()


def _but_not(cause: NextWrong, wrong: Sequence[str]) -> NextWrong:
    """Return a cause with a view of the same stage that is wrong with it, if there is one and none is named yet."""
    own = TensorName.parse(cause.what)
    others = [what for what in wrong if TensorName.parse(what).view not in ("", own.view)]
    if not others or cause.answer.beyond.startswith(NOT):
        return cause
    return cause._replace(answer=replace(cause.answer, beyond=f"{NOT}{others[0]}"))


def _is_known(clean: Clean, stage: str, own: Mapping[tuple[str, str], Tensor]) -> bool:
    """Return whether the subject shows all inputs of a stage, and they are finite."""
    family = clean.engine.family
    views = ("crops", "page") if clean.grid != (1, 1) else ("page",)
    last = family.of_views[-1].name
    takes = (last,) if stage == FUSION else (FUSION,) if stage == PREFILL else family.stage[stage].takes
    given = [own.get((one, "" if one == FUSION else view)) for one in takes if one != PIXELS for view in views]
    return all(one is not None and bool(torch.isfinite(one).all()) for one in given)
