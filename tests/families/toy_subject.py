"""An implementation of the toy that forgets the bias of its own stage."""

from __future__ import annotations

from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject


class Forgetful(SessionSubject):
    """Not the session itself, which cannot be compared with itself."""


def subject(setup: Setup) -> Forgetful:
    """Load it."""
    session = Engine.from_checkpoint(setup.checkpoint, device=setup.device, dtype=setup.dtype)
    session.model.get_submodule("model.adapter").get_parameter("bias").zero_()
    return Forgetful(session)
