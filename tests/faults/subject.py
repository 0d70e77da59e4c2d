"""A session with one mistake as a subject: ``--dsocr-subject=tests.faults.subject:SAM_03``."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import pytest

from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject
from tests.faults.all import PLANTED
from tests.faults.registry import Fault


class Planted(SessionSubject):
    """A session with a mistake in it, and in those loaded before it only once this one is closed."""

    loaded: ClassVar[list[Planted]] = []

    def __init__(self, fault: Fault, setup: Setup) -> None:
        super().__init__(session_subject(setup).session)
        self.fault, self.patch = fault, pytest.MonkeyPatch()
        if self.loaded:
            self.loaded[-1].patch.undo()
        self.loaded.append(self)
        fault.plant(self.patch, self)

    def close(self) -> None:
        """Take the mistake out, and plant it again in the subject that was loaded before."""
        self.patch.undo()
        self.loaded.remove(self)
        if self.loaded:
            before = self.loaded[-1]
            before.fault.plant(before.patch, before)


def __getattr__(name: str) -> Callable[[Setup], SessionSubject]:
    fault = PLANTED.get(name.replace("_", "-"))
    if fault is None:
        raise AttributeError(name)

    def planted(setup: Setup) -> SessionSubject:
        return Planted(fault, setup)

    return planted
