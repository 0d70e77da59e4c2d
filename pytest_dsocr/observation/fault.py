"""A subject's error, told apart from every verdict."""

from __future__ import annotations

from pytest_dsocr.foundation.errors import DsocrError


class SubjectFaultError(DsocrError):
    """The subject raised, or gave what is no answer; never a verdict, always an error.

    Args:
        stage: ``load``, ``tokenizer``, ``vision``, ``prefill``, ``decode``, ``read``, ``postprocess`` or ``close``.
        message: one sentence: what was wrong, then what to do.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class SubjectHungError(SubjectFaultError):
    """The subject did not come back within the time limit."""
