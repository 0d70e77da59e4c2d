"""A side of a comparison in its own process, with its own interpreter and path."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.words import shown
from pytest_dsocr.subjects.calls import LOAD
from pytest_dsocr.subjects.isolation import messages, transport
from pytest_dsocr.subjects.isolation.messages import REFUSAL
from pytest_dsocr.subjects.isolation.transport import ChildProcess, ProcessLostError
from pytest_dsocr.timing.candidate import Candidate

BOOT = """import importlib.util, sys
folder, messages, transport, pipe = sys.argv[1:]
try:
    import pytest_dsocr
except ImportError:
    sys.exit(f"{sys.executable} finds no pytest_dsocr; install pytest-dsocr there")
def load(name, file, **how):
    spec = importlib.util.spec_from_file_location(name, file, **how)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
pytest_dsocr.timing = load("pytest_dsocr.timing", folder + "/__init__.py", submodule_search_locations=[folder])
from pytest_dsocr.timing.probe.worker import answering
load("pytest_dsocr.subjects.isolation.messages", messages)
load("dsocr_transport", transport).serve(int(pipe), answering)"""
"""Program of the process: its own ``pytest_dsocr``, perhaps of another commit, with our probe and messages."""
PERF = Path(__file__).parent


class TimedSide:
    """Process of one side, with a limit for each answer and one for start and loading; :func:`sides` starts two."""

    def __init__(self, label: str, candidate: Candidate, limit_s: float, start_limit_s: float) -> None:
        self.label, self.candidate, self._limit_s, self._start_limit_s = label, candidate, limit_s, start_limit_s
        command = [str(candidate.python), "-P", "-c", BOOT, str(PERF), messages.__file__, transport.__file__]
        self.process = ChildProcess(command, candidate.environment(), candidate.folder)

    def ask(self, what: str, **how: Any) -> Any:
        """Ask the worker for something and return its answer.

        Raises:
            DsocrError: if it raises, ends, or hangs; the message states which, and the end of its output.
        """
        limit_s, option = (self._start_limit_s, "--start-limit") if what == LOAD else (self._limit_s, "--time-limit")
        try:
            kind, value = self.process.ask({"do": what, "how": how}, limit_s, lambda _: None)
        except ProcessLostError as lost:
            hung = f"gave no answer within {limit_s:g} s and was ended; see {option}"
            raise DsocrError(
                f"{self._name}: {what}: its process {hung if lost.is_hung else lost.how}\n{lost.trace}"
            ) from lost
        if kind == REFUSAL:
            raise DsocrError(f"{self._name}: {what} failed with {shown(value['error'], 400)}\n{value['trace']}")
        return value

    def check_used(self) -> None:
        """Raise ``DsocrError`` if no code of the candidate was loaded."""
        if self.candidate.is_required and not self.ask("used", roots=[str(one) for one in self.candidate.path]):
            raise DsocrError(
                f"{self._name} would not be measured: nothing that was loaded is its code; "
                "name a --subject that is in it"
            )

    @property
    def _name(self) -> str:
        return f"{self.label} ({self.candidate.name})"


@contextmanager
def sides(candidates: Mapping[str, Candidate], limit_s: float, start_limit_s: float) -> Iterator[list[TimedSide]]:
    """Start a process for each; end them all, at once if an error or an interrupt occurs."""
    started: list[TimedSide] = []
    try:
        for label, candidate in candidates.items():
            started.append(TimedSide(label, candidate, limit_s, start_limit_s))
        yield started
    except BaseException:
        for side in started:
            side.process.end()
        raise
    finally:
        for side in started:
            side.process.close()


def ask_all(both: Sequence[TimedSide], what: str, how: Sequence[Mapping[str, Any]] = ({}, {})) -> list[Any]:
    """Send a request that is not timed to all sides at the same time; if one fails, end the others."""
    with ThreadPoolExecutor(len(both)) as pool:
        try:
            return [*pool.map(lambda side, one: side.ask(what, **one), both, how)]
        except BaseException:
            for side in both:
                side.process.end()
            raise
