"""Mistakes that were written without a look at the catalogue, the hints and the suites, to examine these.

Each is a subject as well, a session that has it: ``--dsocr-subject=tests.exam:THD_27``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module

from pytest_dsocr.explain.planted import PlantedSubject
from pytest_dsocr.observation.config import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject
from tests.exam.planting import Planted

MODULES = ("of_inputs", "of_vision", "of_decoder")


@cache
def exam() -> Mapping[str, Planted]:
    """Return the mistakes by their ids, in the order of the stages."""
    found = [one for name in MODULES for one in vars(import_module(f"{__name__}.{name}")).values()]
    return {one.id: one for one in found if isinstance(one, Planted)}


def __getattr__(name: str) -> Callable[[Setup], SessionSubject]:
    if not name.startswith("THD") or (one := exam().get(name.replace("_", "-"))) is None:
        raise AttributeError(name)
    return lambda setup: PlantedSubject(session_subject(setup).session, one.put)
