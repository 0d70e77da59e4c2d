"""A live reference that is made ready while the subject is loaded: neither waits for the other."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from pytest_dsocr.judge.config import Config
from pytest_dsocr.reference.vendor_code.files import FILES

if TYPE_CHECKING:
    from pytest_dsocr.reference.protocol import OnProgress, Reference


class Begun:
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
        from pytest_dsocr.plugin.sides import open_wanted

        try:
            self._future.set_result(open_wanted(config, on_progress=self._tell))
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
    return any("dsocr_reference" in getattr(item, "fixturenames", ()) for item in session.items)
