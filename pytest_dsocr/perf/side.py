"""One side of a comparison in a process of its own, with its own interpreter and path."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import fit, shown
from pytest_dsocr.perf.candidate import Candidate

BOOT = """import importlib.util, sys
folder = sys.argv[1]
try:
    import pytest_dsocr
except ImportError:
    sys.exit(f"{sys.executable} finds no pytest_dsocr; install pytest-dsocr there")
spec = importlib.util.spec_from_file_location(
    "pytest_dsocr.perf", folder + "/__init__.py", submodule_search_locations=[folder])
pytest_dsocr.perf = sys.modules["pytest_dsocr.perf"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(pytest_dsocr.perf)
from pytest_dsocr.perf.probe.worker import main
main()"""
"""What the process runs: its own ``pytest_dsocr``, which another commit may have written, and this one's probe."""
PERF = Path(__file__).parent
CLOSING_S, POLL_S = 5.0, 0.2
TRACE_BYTES, TRACE_LINES, COLUMNS = 16_384, 12, 160


class Side:
    """One process; :func:`sides` starts two and ends them.

    Args:
        label: ``A`` or ``B``, for messages.
        candidate: what it runs.
        limit_s: seconds that an answer may take.
    """

    def __init__(self, label: str, candidate: Candidate, limit_s: float) -> None:
        self.label, self.candidate, self.limit_s = label, candidate, limit_s
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed as it ends
        self._process = subprocess.Popen(
            [str(candidate.python), "-P", "-c", BOOT, str(PERF)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            cwd=candidate.folder,
            env=candidate.environment(),
            start_new_session=True,  # Ctrl-C is for the command, which ends this
        )
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, what: str, **how: Any) -> Any:
        """Ask the worker for something; return its answer, or raise as :meth:`answer`."""
        self.begin(what, **how)
        return self.answer(what)

    def begin(self, what: str, **how: Any) -> None:
        """Ask the worker for something, and do not wait for it."""
        self._send({"do": what, "how": how})

    def answer(self, what: str) -> Any:
        """Wait for the answer to what was asked.

        Raises:
            DsocrError: where it raises, ends, hangs, or sends something that is no answer; the message says which, and
                the end of what it printed.
        """
        line = self._line(what)
        try:
            answer = json.loads(line)
            if "value" in answer:
                return answer["value"]
            error, trace = answer["error"], answer["trace"]
        except (ValueError, TypeError, KeyError):
            said = fit(line.decode(errors="replace").strip(), COLUMNS)
            raise self._failed(what, f"gave something that is no answer: {said!r}") from None
        raise DsocrError(f"{self._name}: {what} failed with {shown(error, 400)}\n{_last_lines(trace)}".strip())

    def check_used(self) -> None:
        """Raise ``DsocrError`` where the code that the candidate stands for was not loaded."""
        if self.candidate.is_required and not self.ask("used", roots=[str(one) for one in self.candidate.path]):
            raise DsocrError(
                f"{self._name} would not be measured: nothing that was loaded is its code; "
                "name a --subject that is in it"
            )

    def end(self) -> None:
        """Ask it to end; kill it and all that it started if it does not."""
        with suppress(OSError, ValueError):
            self._send({"do": "end", "how": {}})
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSING_S)
        self.kill()

    def kill(self) -> None:
        """Kill it and all that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin:
            with suppress(OSError):
                self._process.stdin.close()
        self._listener.join(CLOSING_S)
        self._stderr.close()

    @property
    def _name(self) -> str:
        return f"{self.label} ({self.candidate.name})"

    def _send(self, request: Mapping[str, Any]) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with suppress(BrokenPipeError):  # the wait for its answer says why it has gone
            pipe.write(json.dumps(request).encode() + b"\n")
            pipe.flush()

    def _listen(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        with pipe:
            for line in pipe:
                self._answers.put(line)
        self._answers.put(b"")

    def _line(self, what: str) -> bytes:
        until = time.monotonic() + self.limit_s
        while time.monotonic() < until:
            with suppress(queue.Empty):
                line = self._answers.get(timeout=POLL_S)
                if not line:
                    raise self._failed(what, self._how_it_ended())
                return line
        raise self._failed(what, f"gave no answer within {self.limit_s:g} s and was ended; see --time-limit")

    def _how_it_ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSING_S)
        status = self._process.returncode
        if status is None:
            return "closed its output"
        return next(
            (f"was killed by {one.name}" for one in signal.Signals if one == -status), f"ended with status {status}"
        )

    def _failed(self, what: str, how: str) -> DsocrError:
        size = os.fstat(self._stderr.fileno()).st_size
        said = os.pread(self._stderr.fileno(), TRACE_BYTES, max(0, size - TRACE_BYTES)).decode(errors="replace")
        return DsocrError(f"{self._name}: {what}: its process {how}\n{_last_lines(said)}".strip())


@contextmanager
def sides(candidates: Mapping[str, Candidate], limit_s: float) -> Iterator[list[Side]]:
    """Start a process for each; end them all, at once where an error or an interrupt leaves them."""
    started: list[Side] = []
    try:
        for label, candidate in candidates.items():
            started.append(Side(label, candidate, limit_s))
        yield started
    except BaseException:
        for side in started:
            side.kill()
        raise
    for side in started:
        side.end()


def _last_lines(text: str) -> str:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return "\n".join(fit(line, COLUMNS) for line in lines[-TRACE_LINES:])
