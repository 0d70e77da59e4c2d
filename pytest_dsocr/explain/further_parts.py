"""Parts of the work that may be wrong for several reasons: the engine computes them with the causes known so far."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial, reduce
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn

from pytest_dsocr.contract import COMPARED, PIXELS
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.catalogue import groups
from pytest_dsocr.explain.decoding import Stepper, explain_steps
from pytest_dsocr.explain.explain import NEAR_OF_PIXELS, of_inputs, of_seam
from pytest_dsocr.explain.mistake import Changes, Mistake, PromptState, Target, blocks_of, in_one_block
from pytest_dsocr.explain.question import Question
from pytest_dsocr.explain.recompute import Clean, inputs_under
from pytest_dsocr.explain.search import Search, SearchResult, distance
from pytest_dsocr.explain.together import added, together
from pytest_dsocr.models.spec import VIEWS
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import Seam


class KnownCause(NamedTuple):
    """A known cause in some blocks of its stage."""

    mistake: Mistake
    first: int = 0
    """Index of the first block that has it."""
    behind: int | None = None
    """Index of the first block after it that does not; None if there is none."""

    @property
    def id(self) -> str:
        """The mistake's id."""
        return self.mistake.id


class WrongPart(Protocol):
    """A part of the work, computed from the subject's own input."""

    known: list[KnownCause]
    """Causes that were found."""

    def has(self, what: str) -> bool:
        """Return whether a comparison belongs to it."""

    def wrong(self) -> Sequence[str]:
        """Return what the known causes leave wrong: the first wrong tensor of each view, or wrong inputs."""

    def search(self, what: str, search: Search) -> SearchResult:
        """Search for the cause of one of them."""

    def learn(self, what: str, found: Sequence[str]) -> None:
        """Add the cause of a comparison to the known ones."""


class OfInputs:
    """The inputs of a case.

    Args:
        actual: the subject's wrong inputs.
    """

    def __init__(self, engine: Engine[Any], case: Case, actual: Mapping[str, Tensor]) -> None:
        self.engine, self.case, self.actual = engine, case, actual
        self.known: list[KnownCause] = []

    def has(self, what: str) -> bool:
        """Return whether a comparison is one of inputs."""
        return what in COMPARED

    def wrong(self) -> Sequence[str]:
        """Return the names of the inputs that the known causes do not give."""
        made = inputs_under(self.engine, self.case, self._base).tensors
        return [name for name, own in self.actual.items() if not _is_equal(name, own, made[name])]

    def search(self, what: str, search: Search) -> SearchResult:
        """Search for the cause of a wrong input."""
        return of_inputs(self.engine, self.case, search, self._base)

    def learn(self, what: str, found: Sequence[str]) -> None:
        """Add the cause of a wrong input."""
        self.known += [KnownCause(mistake_of(one, self.engine)) for one in found]

    @property
    def _base(self) -> Mistake | None:
        return reduce(added, (one.mistake for one in self.known), None)


def _is_equal(name: str, own: Tensor, made: Tensor) -> bool:
    if own.shape != made.shape:
        return False
    near = NEAR_OF_PIXELS if name in PIXELS else 0.0
    made = made.double()
    return float((own.to(made.device).double() - made).norm()) <= near * float(made.norm())


class WrongSeamError(Exception):
    """End of a stage at its first wrong seam.

    Args:
        name: the seam's.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class OfStage:
    """A stage of vision or the prompt, for all its views.

    Args:
        clean: the engine's tensors from the subject's own ones.
        question: with the subject's seams of the stage.
    """

    def __init__(self, clean: Clean, stage: str, question: Question) -> None:
        self.clean, self.stage, self.question = clean, stage, question
        self.known: list[KnownCause] = []
        self._firsts: dict[Any, str] = {}
        names = (TensorName(stage, view) for view in (*VIEWS, ""))
        self.wholes = [one for one in names if str(one) in question.seams]
        """Outputs of the stage that the subject shows."""

    def has(self, what: str) -> bool:
        """Return whether a comparison is a seam of the stage."""
        return TensorName.parse(what).stage == self.stage

    def wrong(self) -> Sequence[str]:
        """Return the first wrong seam of each view with the known causes."""
        return [what for one in self.wholes if (what := self._first_wrong(one, self.known))]

    def search(self, what: str, search: Search) -> SearchResult:
        """Search for the cause of a wrong seam."""
        with self.planted(self.known):
            return of_seam(self.clean, search)

    def learn(self, what: str, found: Sequence[str]) -> None:
        """Add a cause: to all blocks from the wrong one on, or to that block alone if this explains more."""
        whole, depth = TensorName.parse(what).whole, TensorName.parse(what).block
        for mistake in (mistake_of(one, self.clean.engine) for one in found):
            way = KnownCause(mistake, depth or 0)
            if depth is not None and self._first_wrong(whole, [*self.known, way]):
                ways = way, KnownCause(mistake, depth, depth + 1)
                way = max(ways, key=lambda one: self._reach(whole, [*self.known, one]))
            self.known.append(way)

    def _reach(self, whole: TensorName, known: Sequence[KnownCause]) -> float:
        """Return the index of the first wrong block; the output of the stage comes after all blocks."""
        block = TensorName.parse(self._first_wrong(whole, known)).block
        return math.inf if block is None else block

    @contextmanager
    def planted(self, known: Sequence[KnownCause]) -> Iterator[None]:
        """Let the engine have causes."""
        engine, prompt = self.clean.engine, PromptState.of(self.clean.inputs)
        every = blocks_of(engine, self.stage)
        with Changes() as changes:
            for one, first, behind in known:
                one.plant(Target(engine, changes, self.stage, every[first:behind], every, first, prompt))
            yield

    def _first_wrong(self, whole: TensorName, known: Sequence[KnownCause]) -> str:
        """Return the first wrong seam of a view; empty if the stage's output is right."""
        key = whole, tuple((one.id, *one[1:]) for one in known)
        if key not in self._firsts:
            self._firsts[key] = self._computed(whole, known)
        return self._firsts[key]

    def _computed(self, whole: TensorName, known: Sequence[KnownCause]) -> str:
        with self.planted(known):
            if self._is_right(str(whole), self.clean.run(self.stage, whole.view)):
                return ""
            with ExitStack() as hooks:
                for depth, block in enumerate(blocks_of(self.clean.engine, self.stage)):
                    name = str(whole._replace(block=depth))
                    if name in self.question.seams:
                        hooks.enter_context(block.register_forward_hook(partial(self._stop_if_wrong, name)))
                try:
                    self.clean.run(self.stage, whole.view)
                except WrongSeamError as stopped:
                    return stopped.name
        return str(whole)

    def _stop_if_wrong(self, name: str, _module: nn.Module, _args: Any, out: Tensor) -> None:
        if not self._is_right(name, out):
            raise WrongSeamError(name)

    def _is_right(self, name: str, made: Tensor) -> bool:
        return distance(self.question.seams[name], Seam.of(made)) <= self.question.near


class OfSteps:
    """The decode steps after a prompt that is right, or has known causes.

    Args:
        prompt: the prompt.
        question: with the subject's steps.
    """

    def __init__(self, prompt: OfStage, question: Question) -> None:
        self.prompt, self.question, self.known = prompt, question, [*prompt.known]

    def has(self, what: str) -> bool:
        """Return whether a comparison is one of steps."""
        return what == self.question.what

    def wrong(self) -> Sequence[str]:
        """Return ``logits`` if a step is wrong, and no cause of the steps is known yet."""
        if len(self.known) > len(self.prompt.known):
            return []
        with self.prompt.planted(self.known):
            error = Stepper(self.prompt.clean, self.question).without if self.question.steps else 0.0
        return [self.question.what] if error > self.question.near else []

    def search(self, what: str, search: Search) -> SearchResult:
        """Search for the cause of wrong steps."""
        with self.prompt.planted(self.known):
            return explain_steps(self.prompt.clean, search)

    def learn(self, what: str, found: Sequence[str]) -> None:
        """Add the cause of wrong steps."""
        self.known += [KnownCause(mistake_of(one, self.prompt.clean.engine)) for one in found]


def mistake_of(name: str, engine: Engine[Any]) -> Mistake:
    """Return the mistake of an id, also in one block alone, or of two that are one."""
    group, _, own = name.partition(".")
    known = {one.name: one for one in groups(engine.family)[group]}
    if own in known:
        return known[own]
    alone, _, block = own.rpartition("@")
    if block.isdigit():
        return next(one for one in in_one_block([known[alone]], engine) if one.id == name)
    first, _, second = own.partition("+")
    both = together(known[first], known[second])
    assert both is not None
    return both
