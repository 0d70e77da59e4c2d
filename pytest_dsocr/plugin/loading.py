"""Lines on the terminal that say why a run waits while it loads both sides."""

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
    """Return whether the reference is the vendor's code, run live."""
    return isinstance(config.reference, Path) and family_in(config.reference) is not None


FIRST_S = 5.0
"""Seconds until the first line."""


class Waiting:
    """Task that the run waits for, and its progress."""

    def __init__(self, what: str) -> None:
        self._what, self._at = what, ""

    def on_progress(self, what: str, done: int, total: int | None) -> None:
        """Note the current step, the amount done, and the total if it is known."""
        self._at = f", {what} {done / total:.0%}" if total else f", {what} {done}"

    def line(self, elapsed_s: float) -> str:
        """Return the task, its progress and the elapsed time as a line."""
        return plain(f"dsocr: waiting {elapsed_s:.0f} s for {self._what}{self._at}")


@contextmanager
def reported_past_capture(line: Callable[[float], str], config: pytest.Config, first_s: float) -> Iterator[None]:
    """Write lines to stderr, past pytest's capture; see :func:`~pytest_dsocr.base.progress.reported`."""
    with uncaptured(config):
        terminal = os.fdopen(os.dup(2), "wb", buffering=0)
    with (
        closing(terminal),
        progress.reported(line, lambda text: os.write(terminal.fileno(), f"\n{text}\n".encode()), first_s),
    ):
        yield


@contextmanager
def waiting_for(what: str, config: pytest.Config) -> Iterator[Waiting]:
    """Report the task that the run waits for. Workers of pytest-xdist use their controller's stderr."""
    if worker := getattr(config, "workerinput", {}).get("workerid"):
        what += f" ({worker})"
    waiting = Waiting(what)
    with reported_past_capture(waiting.line, config, FIRST_S):
        yield waiting
