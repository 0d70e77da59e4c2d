"""The process that explains: the session without a mistake, and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_dsocr.reference.live.wire import unpack_case
from pytest_dsocr.session_reference.runtime import SessionRuntime
from pytest_dsocr.whatif.question import Question


class WhatIfRuntime(SessionRuntime):
    """A session as :class:`~pytest_dsocr.session_reference.runtime.SessionRuntime` loads it, which explains."""

    def explain(self, packed: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a packed :class:`~pytest_dsocr.whatif.question.Question`."""
        import torch

        from pytest_dsocr.whatif.explain import explain

        question = Question.read(packed)
        with torch.no_grad():
            return explain(self.subject.session, unpack_case(question.case), question).to_json()
