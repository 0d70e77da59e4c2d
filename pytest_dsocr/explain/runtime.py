"""The process that explains: the session without a mistake, and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pytest_dsocr.explain.memory import check_memory
from pytest_dsocr.explain.question import Question
from pytest_dsocr.reference.protocol import unpack_case
from pytest_dsocr.reference.session import SessionRuntime


class WhatIfRuntime(SessionRuntime):
    """A session as :class:`~pytest_dsocr.reference.session.SessionRuntime` loads it, which explains."""

    @classmethod
    def load(cls, checkpoint: str, *, device: str = "cpu", dtype: str = "float32", **options: Any) -> Self:
        """Load it as a session is loaded; raise ``DsocrError`` where there is no memory for one more."""
        check_memory(checkpoint, device, dtype)
        return super().load(checkpoint, device=device, dtype=dtype, **options)

    def explain(self, packed: Mapping[str, Any]) -> dict[str, Any]:
        """Answer a packed :class:`~pytest_dsocr.explain.question.Question`."""
        import torch

        from pytest_dsocr.explain.explain import explain

        question = Question.read(packed)
        with torch.no_grad():
            return explain(self.subject.session, unpack_case(question.case), question).to_json()
