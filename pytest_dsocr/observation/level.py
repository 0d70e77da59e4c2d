"""The levels of access that a subject offers, and its errors, which are never verdicts."""

from __future__ import annotations

from enum import IntEnum

from pytest_dsocr.foundation.errors import DsocrError


class Level(IntEnum):
    """What a subject lets itself be asked; each level holds those below it."""

    TEXT = 0
    INPUTS = 1
    STAGES = 2
    MODULES = 3

    def __str__(self) -> str:
        return f"L{self.value}"

    @property
    def meaning(self) -> str:
        """What is offered, in words."""
        return ("text", "inputs", "stages and cache", "named modules")[self]

    @property
    def hides(self) -> str:
        """What no suite can look at, in a sentence; empty where a subject offers all."""
        return HIDDEN[self]


HIDDEN = (
    "not looked at with text alone: pixels, stages and cache, and whatever changes no token of these pages",
    "not looked at with inputs and text alone: stages and cache, and whatever changes no token of these pages",
    "",
    "",
)


class SubjectFaultError(DsocrError):
    """The subject raised, or returned what is no answer; never a verdict, always an error.

    Args:
        stage: ``load``, ``tokenizer``, ``vision``, ``prefill``, ``decode``, ``read``, ``postprocess`` or ``close``.
        message: one sentence: what was wrong, then what to do.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class SubjectHungError(SubjectFaultError):
    """The subject did not come back within the time limit."""
