"""What a run waits for as it loads both sides, shown on its terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from pytest_dsocr.base import progress
from pytest_dsocr.base.words import plain
from pytest_dsocr.plugin.stash import uncaptured
from pytest_dsocr.records.config import Config
from pytest_dsocr.reference.environment import family_in


def is_live(config: Config) -> bool:
    """Return whether the reference is the vendor's code, running."""
    return isinstance(config.reference, Path) and family_in(config.reference) is not None


FIRST_S = 5.0
"""Seconds until it is said what is waited for."""


class Waiting:
    """What is waited for, and how far it has come."""

    def __init__(self, what: str) -> None:
        self._what, self._at = what, ""

    def on_progress(self, what: str, done: int, total: int | None) -> None:
        """Take what is under way, how much of it is done, and its total, where that is known."""
        self._at = f", {what} {done / total:.0%}" if total else f", {what} {done}"

    def line(self, elapsed_s: float) -> str:
        """Return all of it in a line."""
        return plain(f"dsocr: waiting {elapsed_s:.0f} s for {self._what}{self._at}")


@contextmanager
def reported_past_capture(line: Callable[[float], str], config: pytest.Config, first_s: float) -> Iterator[None]:
    """Report on stderr, past pytest's capture; see :func:`~pytest_dsocr.base.progress.report`."""
    with uncaptured(config):
        terminal = os.fdopen(os.dup(2), "wb", buffering=0)
    with (
        closing(terminal),
        progress.reported(line, lambda text: os.write(terminal.fileno(), f"\n{text}\n".encode()), first_s),
    ):
        yield


@contextmanager
def waiting_for(what: str, config: pytest.Config) -> Iterator[Waiting]:
    """Report what is waited for; a worker of pytest-xdist shares its controller's stderr."""
    if worker := getattr(config, "workerinput", {}).get("workerid"):
        what += f" ({worker})"
    waiting = Waiting(what)
    with reported_past_capture(waiting.line, config, FIRST_S):
        yield waiting
