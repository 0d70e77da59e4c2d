"""A session with one mistake as a subject: ``--dsocr-subject=suites.meta.faults.subject:SAM_03``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject
from suites.meta.faults.all import PLANTED


def __getattr__(name: str) -> Callable[[Setup], SessionSubject]:
    fault = PLANTED.get(name.replace("_", "-"))
    if fault is None:
        raise AttributeError(name)

    def planted(setup: Setup) -> SessionSubject:
        subject = session_subject(setup)
        fault.plant(pytest.MonkeyPatch(), subject)  # never undone: the process is the subject's
        return subject

    return planted
