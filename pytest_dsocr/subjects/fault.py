"""What a subject did that is no answer: an error of its own, or something that cannot be compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from textwrap import shorten

from pytest_dsocr.errors import DsocrError

WIDTH = 200


class SubjectFaultError(DsocrError):
    """The subject raised, or gave what is no answer; never a verdict, always an error.

    Args:
        stage: ``tokenizer``, ``vision``, ``prefill``, ``decode``, ``read`` or ``postprocess``.
        message: one sentence: what was wrong, then what to do.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


@contextmanager
def at_stage(stage: str, method: str) -> Iterator[None]:
    """Turn whatever the subject's ``method`` raises into a :class:`SubjectFaultError` of ``stage``."""
    try:
        yield
    except Exception as error:
        said = f"{type(error).__name__}: {shorten(str(error), WIDTH)}" if str(error) else type(error).__name__
        raise SubjectFaultError(
            stage, f"the subject's {method} raised in {stage} ({said}); see the error that this one came from"
        ) from error
