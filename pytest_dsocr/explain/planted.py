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

    A mistake of the decoder is planted again for each prompt, since it may depend on the place of the image.
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
    """Plant a mistake of pixels or of the prompt in the contract, without an engine."""
    with Changes() as changes:
        one.plant(Target(cast(Engine[Any], None), changes))
        yield


class PlantedSubject(EngineSubject):
    """Engine with a mistake, which changes shared classes: earlier ones lose theirs until this one is closed."""

    def __init__(self, engine: Engine[Any], put: Callable[[EngineSubject, Changes], None]) -> None:
        super().__init__(engine)
        self.put, self.changes = put, Changes()
        if _OPEN:
            _OPEN[-1].changes.close()
        _OPEN.append(self)
        put(self, self.changes)

    def close(self) -> None:
        """Take the mistake out, and plant it again in the subject that was opened before."""
        self.changes.close()
        _OPEN.remove(self)
        if _OPEN:
            _OPEN[-1].put(_OPEN[-1], _OPEN[-1].changes)


_OPEN: list[PlantedSubject] = []
"""Open subjects with a mistake, the latest last. Their mistakes change classes of the process, so this is one list."""


def spec_of(name: str) -> str:
    """Return the value of ``--dsocr-subject`` for a mistake's id or number."""
    return f"{__name__}:{_attribute(name)}"


def _attribute(name: str) -> str:
    return re.sub(r"\W", "_", name)


def __getattr__(name: str) -> Callable[[Setup], PlantedSubject]:
    if name.startswith("_"):
        raise AttributeError(name)
    ids = (one for family in MODELS.values() for one in mistakes(family))
    numbers = (one.id for one in ports().values() if one.mistake)
    if (named := next((one for one in (*ids, *numbers) if _attribute(one) == name), None)) is None:
        raise AttributeError(name)

    def planted(setup: Setup) -> PlantedSubject:
        engine = engine_subject(setup).engine
        if (found := resolve(named, engine.family)) is None:
            raise DsocrError(f"{named} is no mistake of {engine.family.title}; dsocr faults lists its mistakes")
        return PlantedSubject(engine, lambda own, changes: plant(found[1], own.engine, changes))

    return planted
