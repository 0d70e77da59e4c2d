"""What a run waits for as it loads both sides, shown on its terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import pytest

from pytest_dsocr.foundation.words import plain
from pytest_dsocr.observation.config import Config
from pytest_dsocr.plugin.stash import uncaptured
from pytest_dsocr.reference.environment import family_in


def is_live(config: Config) -> bool:
    """Return whether the reference is the vendor's code, running."""
    return isinstance(config.reference, Path) and family_in(config.reference) is not None


FIRST_S, EVERY_S = 5.0, 30.0


class Waiting:
    """Prints what is waited for, after a while and then now and again; a context manager around the waiting.

    Args:
        what: is waited for.
        terminal: the descriptor of a file that it is written to.
        first_s: seconds until it is written.
        every_s: seconds from then on until it is written again.
    """

    def __init__(self, what: str, terminal: int, first_s: float, every_s: float) -> None:
        self._what, self._terminal, self._wait_s, self._every_s = what, terminal, first_s, every_s
        self._at = ""
        self._is_over = Event()
        self._thread = Thread(target=self._tell, name="dsocr-waiting", daemon=True)

    def __enter__(self) -> Waiting:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def on_progress(self, what: str, done: int, total: int | None) -> None:
        """Take what is under way, how much of it is done, and its total, where that is known."""
        self._at = f", {what} {done / total:.0%}" if total else f", {what} {done}"

    def _tell(self) -> None:
        started = monotonic()
        while not self._is_over.wait(self._wait_s):
            message = f"dsocr: waiting {monotonic() - started:.0f} s for {self._what}{self._at}"
            os.write(self._terminal, f"\n{plain(message)}\n".encode())
            self._wait_s = self._every_s


@contextmanager
def waiting_for(what: str, config: pytest.Config) -> Iterator[Waiting]:
    """Tell on stderr what is waited for, past pytest's capture; a worker of pytest-xdist shares its controller's."""
    if worker := getattr(config, "workerinput", {}).get("workerid"):
        what += f" ({worker})"
    with uncaptured(config):
        terminal = os.fdopen(os.dup(2), "wb", buffering=0)
    with closing(terminal), Waiting(what, terminal.fileno(), FIRST_S, EVERY_S) as waiting:
        yield waiting
