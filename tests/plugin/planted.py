"""A subject that dies, lies or stops short in the way and at the moment that its environment says.

The file is copied beside the tests of a made-up repository.
"""

from __future__ import annotations

import os
import signal
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

PAGE = "second"
"""The page at which it happens: one was right before, and one comes after."""


def act(moment: str) -> None:
    """Do what is planted, if its moment has come."""
    if os.environ.get("PLANTED_MOMENT") == moment:
        WAYS[os.environ["PLANTED_WAY"]]()


def _signalled(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    time.sleep(60)


def _leave() -> None:
    pytest.exit("enough", returncode=0)


WAYS = {
    "SIGKILL": lambda: _signalled(signal.SIGKILL),
    "SIGTERM": lambda: _signalled(signal.SIGTERM),
    "SIGSEGV": lambda: _signalled(signal.SIGSEGV),
    "SIGABRT": os.abort,
    "SIGINT": lambda: _signalled(signal.SIGINT),
    "_exit(0)": lambda: os._exit(0),
    "_exit(1)": lambda: os._exit(1),
    "pytest.exit": _leave,
}

act("import")


class Planted:
    """Right in all that it says, as long as it lives."""

    def __init__(self) -> None:
        act("make")

    def read(self, page: Path, **how: Any) -> str:
        if page.stem == PAGE:
            act("read")
        return str(import_module("standin").TEXT)

    def close(self) -> None:
        act("close")
