"""An engine with a known mistake in it, as a subject: ``--dsocr-subject=pytest_dsocr.explain.planted:SAM_09``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, ClassVar, cast

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

    One of the decoder is planted anew for each prompt, for it may depend on where the image is in it.
    """
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
    """Plant a mistake of pixels or of the prompt in the contract, which needs no engine."""
    with Changes() as changes:
        one.plant(Target(cast(Engine[Any], None), changes))
        yield


class PlantedSubject(EngineSubject):
    """An engine with a mistake in it, and in those loaded before it only once this one is closed."""

    loaded: ClassVar[list[PlantedSubject]] = []

    def __init__(self, engine: Engine[Any], put: Callable[[EngineSubject, Changes], None]) -> None:
        super().__init__(engine)
        self.put, self.changes = put, Changes()
        if self.loaded:
            self.loaded[-1].changes.close()
        self.loaded.append(self)
        put(self, self.changes)

    def close(self) -> None:
        """Take the mistake out, and plant it again in the subject that was loaded before."""
        self.changes.close()
        self.loaded.remove(self)
        if self.loaded:
            self.loaded[-1].put(self.loaded[-1], self.loaded[-1].changes)


def spec_of(name: str) -> str:
    """Return what ``--dsocr-subject`` takes for a mistake's id or number."""
    return f"{__name__}:{_attribute(name)}"


def _attribute(name: str) -> str:
    return re.sub(r"\W", "_", name)


@cache
def _by_attribute() -> Mapping[str, str]:
    ids = (name for family in MODELS.values() for name in mistakes(family))
    return {_attribute(name): name for name in (*ids, *(one.id for one in ports().values() if one.mistake))}


def __getattr__(name: str) -> Callable[[Setup], PlantedSubject]:
    if name.startswith("__") or (named := _by_attribute().get(name)) is None:
        raise AttributeError(name)

    def planted(setup: Setup) -> PlantedSubject:
        engine = engine_subject(setup).engine
        if (found := resolve(named, engine.family)) is None:
            raise DsocrError(f"{named} is no mistake of {engine.family.title}; dsocr faults lists what is")
        return PlantedSubject(engine, lambda own, changes: plant(found[1], own.engine, changes))

    return planted
