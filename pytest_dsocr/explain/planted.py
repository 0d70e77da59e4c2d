"""Subjects with a known mistake, such as ``--dsocr-subject=pytest_dsocr.explain.planted:SAM_09``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.explain.catalogue import mistakes, ports, resolve
from pytest_dsocr.explain.mistake import Changes, Mistake, PromptState, Target
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.config import Setup
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject


def plant(one: Mistake, engine: Engine[Any], changes: Changes) -> None:
    """Make a loaded engine have a mistake on every page, until the changes are undone.

    A mistake of the decoder is planted again for each prompt, since it may depend on the place of the image. Pages of a
    batch are therefore read one by one: as its rows, all but the last would have the mistake of another page's prompt.
    """
    changes.set(engine, "run_batch", lambda images, **how: [engine.run(image, **how) for image in images])
    if one.group not in (PREFILL, "steps"):
        one.plant(Target.of_stage(engine, changes, one.group))
        return
    of_prompt, right = Changes(), Pipeline.prefill_with

    def prefill_with(self: Pipeline[Any], inputs: Any, features: Any, *, all_logits: bool = False) -> Any:
        of_prompt.close()
        if one.group == PREFILL:
            one.plant(Target.of_stage(engine, of_prompt, PREFILL, PromptState.of(inputs)))
        state = right(self, inputs, features, all_logits=all_logits)
        if one.group == "steps":
            one.plant(Target.of_stage(engine, of_prompt, PREFILL, PromptState.of(inputs, state.logits)))
        return state

    changes.callback(of_prompt.close)
    changes.set(Pipeline, "prefill_with", prefill_with)


@contextmanager
def in_contract(one: Mistake) -> Iterator[None]:
    """Plant a mistake of pixels or of the prompt in the contract, without an engine."""
    with Changes() as changes:
        one.plant(Target(cast(Engine[Any], None), changes))
        yield


Put = Callable[[EngineSubject, Changes], None]
"""Make a subject have a mistake until the changes are undone."""


class Planting:
    """A mistake that each subject it loads has, one at a time: a mistake changes classes which all engines share.

    The latest subject has the mistake. Once that is closed, the one that was opened before has it again.
    """

    def __init__(self, put: Put) -> None:
        self.put, self._changes = put, Changes()
        self._open: list[PlantedSubject] = []

    def __call__(self, setup: Setup) -> PlantedSubject:
        """Load an engine as a subject that has the mistake."""
        self._open.append(subject := PlantedSubject(engine_subject(setup).engine, self._closed))
        try:
            self._put()
        except DsocrError:  # another model's mistake
            subject.close()
            raise
        return subject

    def _put(self) -> None:
        self._changes.close()
        for latest in self._open[-1:]:
            self.put(latest, self._changes)

    def _closed(self, subject: PlantedSubject) -> None:
        self._open.remove(subject)
        self._put()


class PlantedSubject(EngineSubject):
    """Engine with a mistake until it is closed."""

    def __init__(self, engine: Engine[Any], closed: Callable[[PlantedSubject], None]) -> None:
        super().__init__(engine)
        self._closed = closed

    def close(self) -> None:
        """Take the mistake out."""
        self._closed(self)


def spec_of(name: str) -> str:
    """Return the value of ``--dsocr-subject`` for a mistake's id or number."""
    return f"{__name__}:{_attribute(name)}"


def _attribute(name: str) -> str:
    return re.sub(r"\W", "_", name)


def __getattr__(name: str) -> Planting:
    if name.startswith("_"):
        raise AttributeError(name)
    ids = (one for family in MODELS.values() for one in mistakes(family))
    numbers = (one.id for one in ports().values() if one.mistake)
    if (named := next((one for one in (*ids, *numbers) if _attribute(one) == name), None)) is None:
        raise AttributeError(name)

    def put(own: EngineSubject, changes: Changes) -> None:
        if (found := resolve(named, own.engine.family)) is None:
            raise DsocrError(f"{named} is no mistake of {own.engine.family.title}; dsocr faults lists its mistakes")
        plant(found[1], own.engine, changes)

    planting: Planting = globals().setdefault(name, Planting(put))  # one for the process, as any attribute of a module
    return planting
