"""How much a subject lets itself be asked."""

from __future__ import annotations

from enum import IntEnum


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
