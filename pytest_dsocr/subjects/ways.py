"""Subjects that are named by a word and a colon: each word has an adapter.

An adapter is imported when one of its subjects is named, by its module's name, as its room stands above this one.
"""

from __future__ import annotations

import importlib
from typing import Any, Protocol, cast

from pytest_dsocr.observation.level import Level
from pytest_dsocr.subjects.offers import Offers
from pytest_dsocr.subjects.protocol import Setup, TextSubject

CLI, FORK, HTTP, HTTPS, PROCESSOR = "cli:", "fork:", "http:", "https:", "processor:"
ADAPTERS = {CLI: "command", FORK: "fork", HTTP: "server", HTTPS: "server", PROCESSOR: "processor"}
"""By the beginning of a subject's name, the module in ``pytest_dsocr.adapters``."""


class Way(Protocol):
    """What an adapter's module has."""

    LEVEL: Level
    """What its subjects offer."""
    OWN_PROCESS: bool
    """Whether they are processes of their own already, which need no other around them."""

    def check(self, spec: str) -> None:
        """Raise ``DsocrError`` where the name cannot be one of a subject; asks nobody."""

    def offers(self, spec: str) -> Offers:
        """Give which presets and prompts are offered; asks nobody."""

    def subject(self, spec: str, setup: Setup) -> TextSubject:
        """Give the subject; raise ``DsocrError`` where it cannot be had."""


def way_of(spec: str) -> Way | None:
    """Give the adapter that a subject's name asks for, if it asks for one."""
    for beginning, module in ADAPTERS.items():
        if spec.startswith(beginning):
            found: Any = importlib.import_module(f"pytest_dsocr.adapters.{module}")
            return cast("Way", found)
    return None
