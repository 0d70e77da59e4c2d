"""A session with one mistake of the exam as a subject: ``--dsocr-subject=tests.exam.subject:THD_27``."""

from __future__ import annotations

from collections.abc import Callable

from pytest_dsocr.explain.planted import PlantedSubject
from pytest_dsocr.observation.config import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject
from tests.exam import exam


def __getattr__(name: str) -> Callable[[Setup], SessionSubject]:
    found = exam().get(name.replace("_", "-"))
    if found is None:
        raise AttributeError(name)
    return lambda setup: PlantedSubject(session_subject(setup).session, found.put)
