"""Loading both sides: a live reference beside the subject, and what a run waits for, shown on its terminal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.foundation.words import plain
from pytest_dsocr.observation.config import Config
from pytest_dsocr.reference.environment import FILES

if TYPE_CHECKING:
    from pytest_dsocr.reference.protocol import OnProgress, Reference


REFERENCE = "dsocr_reference"


class StartedReference:
    """Opens the reference of a run in a thread, at once. The thread ends with the process, whatever it waits for.

    Args:
        config: of the run.
    """

    def __init__(self, config: Config) -> None:
        self._on_progress: OnProgress | None = None
        self._future: Future[Reference] = Future()
        Thread(target=self._open, args=(config,), name="dsocr-reference", daemon=True).start()

    def ready(self, on_progress: OnProgress) -> Reference:
        """Wait for it; raise what kept it from being opened.

        Args:
            on_progress: called with its progress from now on.
        """
        self._on_progress = on_progress
        return self._future.result()

    def close(self) -> None:
        """End it where it is ready; one that is not ends with the process."""
        if self._future.done() and not self._future.exception():
            self._future.result().close()

    def _open(self, config: Config) -> None:
        from pytest_dsocr.cases.reference import reference_of

        try:
            self._future.set_result(reference_of(config, on_progress=self._tell))
        except BaseException as error:
            self._future.set_exception(error)

    def _tell(self, what: str, done: int, total: int | None) -> None:
        if self._on_progress:
            self._on_progress(what, done, total)


def is_live(config: Config) -> bool:
    """Say whether the reference is the vendor's code, running."""
    return isinstance(config.reference, Path) and (config.reference / FILES[0]).is_file()


def is_needed(session: pytest.Session) -> bool:
    """Say whether any test of this process asks for the reference."""
    return any(REFERENCE in _fixtures(item) for item in session.items)


def _fixtures(item: pytest.Item) -> Sequence[str]:
    return getattr(item, "fixturenames", ())


FIRST_S, EVERY_S = 5.0, 30.0


class Waiting:
    """Tells what is waited for, after a while and then now and again; a context manager around the waiting.

    Args:
        what: is waited for.
        terminal: the descriptor of a file that it is told to.
        first_s: seconds until it is told.
        every_s: seconds from then on until it is told again.
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
            told = f"dsocr: waiting {monotonic() - started:.0f} s for {self._what}{self._at}"
            os.write(self._terminal, f"\n{plain(told)}\n".encode())
            self._wait_s = self._every_s


@contextmanager
def waiting_for(what: str, config: pytest.Config) -> Iterator[Waiting]:
    """Tell on stderr what is waited for, past pytest's capture; a worker of pytest-xdist shares its controller's."""
    if worker := getattr(config, "workerinput", {}).get("workerid"):
        what += f" ({worker})"
    capture = config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        terminal = os.fdopen(os.dup(2), "wb", buffering=0)
    with closing(terminal), Waiting(what, terminal.fileno(), FIRST_S, EVERY_S) as waiting:
        yield waiting
