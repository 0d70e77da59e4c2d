"""A Python that has imported torch already: for tests that start many processes of their own.

It is called as ``python`` is. Behind it a server, started once, has imported what takes long; each call is a process
that the server forks. It has the working directory, environment, files, arguments and exit status of a call of
``python``, and it is sent the signals that the caller is sent. This project and the plugins of pytest it has imported
as a run of pytest does; a test of another installation, or of what is imported when, needs an interpreter of its own.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.warm_python import client, server

ENDING_S = 60


@contextmanager
def warm_python() -> Iterator[str]:
    """Start a server; give the path of what is to be called in the place of ``python``."""
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        socket, python = Path(folder, "socket"), Path(folder, "python")
        code = Path(client.__file__).read_text(encoding="utf-8")
        python.write_text(f"#!{sys.executable} -IS\n{code}\nmain({str(socket)!r})\n", encoding="utf-8")
        python.chmod(0o700)
        process = subprocess.Popen(
            [sys.executable, server.__file__, str(socket), str(python)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd="/",
            env={name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "DSOCR_"))},
        )
        assert process.stdin
        assert process.stdout
        try:
            with process.stdout as listens:
                listens.read()  # to its end, which comes when the server listens
            yield str(python)
        finally:
            process.stdin.close()  # at which it ends
            process.wait(ENDING_S)
