"""A server in a process of its own, for the tests of this folder."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.adapters import server
from tests.checkout import CHECKOUT


@contextmanager
def serving() -> Iterator[str]:
    """Yield the address of a server that is up."""
    command = [sys.executable, "-m", server.__name__]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=CHECKOUT, **pipes) as process:
        assert process.stdout
        try:
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with serving() as found:
        yield found
