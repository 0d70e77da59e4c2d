"""A session with one mistake of the exam as a subject: ``--dsocr-subject=tests.exam.subject:HLD_27``."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from pytest_dsocr.observation.config import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject
from tests.exam import SETS, exam
from tests.exam.planting import Planted


class PlantedSubject(SessionSubject):
    """A session with a mistake in it, and in those loaded before it only once this one is closed."""

    loaded: ClassVar[list[PlantedSubject]] = []

    def __init__(self, one: Planted, setup: Setup) -> None:
        super().__init__(session_subject(setup).session)
        self.mistake, self.patch = one, pytest.MonkeyPatch()
        if self.loaded:
            self.loaded[-1].patch.undo()
        self.loaded.append(self)
        one.plant(self.patch, self)

    def close(self) -> None:
        """Take the mistake out, and plant it again in the subject that was loaded before."""
        self.patch.undo()
        self.loaded.remove(self)
        if self.loaded:
            before = self.loaded[-1]
            before.mistake.plant(before.patch, before)


def __getattr__(name: str) -> Callable[[Setup], SessionSubject]:
    found = next((exam(one)[name.replace("_", "-")] for one in SETS if name.replace("_", "-") in exam(one)), None)
    if found is None:
        raise AttributeError(name)

    def planted(setup: Setup) -> PlantedSubject:
        return PlantedSubject(found, setup)

    return planted
