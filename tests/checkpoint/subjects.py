"""Factories of sessions that take a second checkpoint, or do not."""

from __future__ import annotations

from dataclasses import replace

from pytest_dsocr.engine.places import MINI
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject


class InFloat32(SessionSubject):
    """Right; says nothing of other dtypes."""

    dtypes = ()  # type: ignore[assignment]


def takes_one(setup: Setup) -> SessionSubject:
    """Take the run's checkpoint alone, and say so."""
    if setup.checkpoint != MINI:
        raise NotImplementedError("one checkpoint is built in")
    return session_subject(setup)


def ignores_it(setup: Setup) -> SessionSubject:
    """Load one checkpoint, whatever is asked for."""
    return session_subject(replace(setup, checkpoint=MINI))
