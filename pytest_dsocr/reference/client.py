"""Client of a worker process, in the vendor's environment or in the caller's."""

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pytest_dsocr.base.process import IDLE_WAITS
from pytest_dsocr.records.config import START_LIMIT_S
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.reference.environment import command_in
from pytest_dsocr.reference.protocol import OnProgress, ReferenceFaultError
from pytest_dsocr.subjects.isolation.messages import REFUSAL
from pytest_dsocr.subjects.isolation.transport import ChildProcess, ProcessLostError

ReadT = TypeVar("ReadT")
LOG = logging.getLogger(__name__)
ATTEMPTS = 2
STARTING = ("versions", "import", "load")
"""Requests that import packages or load weights, and get the start limit."""
BROKEN = (ValueError, TypeError, LookupError, AttributeError)
IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError")
MEMORY_ERRORS = ("MemoryError", "OutOfMemoryError")
FLAGS = ("-B", "-X", "faulthandler")
"""Write no bytecode next to the vendor's files, and print the stack if C code crashes."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


Reader = Callable[[Any], ReadT]
"""Converts an answer; raises one of :data:`BROKEN` if the answer is invalid."""


class WorkerFault(Exception):  # noqa: N818 - becomes part of a ReferenceFaultError
    """Failure of a worker.

    Args:
        what: the event, such as ``was killed by SIGKILL``.
        advice: for the user.
        trace: end of the worker's output.
        is_lost: whether the process no longer answers, and another one may be tried.
    """

    def __init__(self, what: str, advice: str, trace: str = "", *, is_lost: bool = False) -> None:
        super().__init__(what)
        self.what, self.advice, self.trace, self.is_lost = what, advice, trace, is_lost
        self.phase = ""


class Client:
    """Client of a worker, which it starts, asks, replaces and ends; for one thread at a time.

    Args:
        python: the interpreter that runs the worker.
        load: the arguments of ``load``, the first request to each worker.
        time_limit_s: seconds without progress after which a worker is ended.
        start_limit_s: the same while it starts and loads.
        on_progress: called with every report of progress.
    """

    def __init__(
        self,
        python: Path,
        load: Mapping[str, Any],
        time_limit_s: float,
        start_limit_s: float = START_LIMIT_S,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._python, self._load = python, load
        self.time_limit_s, self.start_limit_s = time_limit_s, start_limit_s
        self._on_progress = on_progress or (lambda what, done, total: None)
        self._worker: ChildProcess | None = None
        self._versions: Mapping[str, str] = {}
        self._provenance: Provenance | None = None
        self._load_faults: Sequence[WorkerFault] = ()
        self._is_abandoned = False

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker, or None."""
        return self._worker.pid if self._worker else None

    def import_code(self) -> Mapping[str, str]:
        """Import the vendor's files in a worker without loading weights; return the versions in its environment.

        Raises:
            ReferenceFaultError: if that fails.
        """
        vendor = self._load["vendor"]
        self._insist(f"import({vendor})", lambda: self._request(self._started(), "import", {"vendor": vendor}, bool))
        return self._versions

    def start(self) -> Provenance:
        """Start a worker unless one has loaded; return the provenance of its answers.

        Raises:
            ReferenceFaultError: if that fails. Every later request then fails in the same way.
        """
        return self._insist(f"load({self._load['checkpoint']})", lambda: self._loaded()[1])

    def ask(self, subject: str, method: str, params: Mapping[str, Any], read: Reader[ReadT]) -> ReadT:
        """Send a request about ``subject``; if the worker dies, ask a new one once.

        Raises:
            ReferenceFaultError: if there is no answer.
        """
        return self._insist(f"{method}({subject})", lambda: self._request(self._loaded()[0], method, params, read))

    def abandon(self) -> None:
        """End the worker until :meth:`close`; a request that another thread waits for fails."""
        self._is_abandoned = True
        if worker := self._worker:
            worker.end()

    def close(self) -> None:
        """End the worker; a later request starts another."""
        self._forget()
        self._is_abandoned = False

    def _forget(self) -> None:
        if self._worker:
            self._worker.close()
        self._worker = self._provenance = None

    @property
    def _is_vendors(self) -> bool:
        """Whether the vendor's code answers, and not the engine."""
        return self._load["vendor"] is not None

    def _insist(self, request: str, attempt: Callable[[], ReadT]) -> ReadT:
        faults = list(self._load_faults)
        while not faults or (faults[-1].is_lost and len(faults) < ATTEMPTS and not self._is_abandoned):
            if faults:
                LOG.warning("%s\nA new worker is started.", self._message(request, faults))
            try:
                return attempt()
            except WorkerFault as fault:
                faults.append(fault)
                if fault.is_lost or fault.phase:
                    self._drop()
            except BaseException:  # the worker still works on the abandoned request
                self._drop()
                raise
        if faults[-1].phase:
            self._load_faults = faults
        raise ReferenceFaultError(self._message(request, faults))

    def _drop(self) -> None:
        if self._worker:
            self._worker.kill()
        self._forget()

    def _loaded(self) -> tuple[ChildProcess, Provenance]:
        try:
            worker = self._started()
            self._provenance = self._provenance or self._request(worker, "load", self._load, Provenance.from_json)
        except WorkerFault as fault:
            fault.phase = f"loading {self._load['checkpoint']}, "
            raise
        return worker, self._provenance

    def _started(self) -> ChildProcess:
        if self._worker is None:
            self._worker = self._process()
            self._versions = self._request(self._worker, "versions", {}, dict)
        return self._worker

    def _process(self) -> ChildProcess:
        """Start a worker, with a folder for its temporary files that is deleted with it."""
        folder = tempfile.mkdtemp(prefix="dsocr-worker-")
        apart = self._is_vendors
        executable, *arguments = command_in(self._python, "pytest_dsocr.reference.worker", folder, apart=apart)
        inherited = {
            name: value for name, value in os.environ.items() if not (apart and name.startswith(("PYTHON", "__PYVENV")))
        }
        try:
            process = ChildProcess(
                [executable, *FLAGS, *arguments], {**IDLE_WAITS, **inherited, **OFFLINE, "TMPDIR": folder}
            )
        except OSError as error:
            shutil.rmtree(folder)
            what = f"could not be started as {self._python} ({error.strerror or error})"
            raise WorkerFault(what, "name the environment that `dsocr vendor setup` created") from error
        weakref.finalize(process, shutil.rmtree, folder, ignore_errors=True)
        return process

    def _request(self, worker: ChildProcess, method: str, params: Mapping[str, Any], read: Reader[ReadT]) -> ReadT:
        if self._is_abandoned:
            worker.end()
        is_start = method in STARTING
        limit_s = self.start_limit_s if is_start else self.time_limit_s
        try:
            kind, answer = worker.ask(
                {"method": method, "params": params}, limit_s, lambda sign: self._on_progress(*sign)
            )
        except ProcessLostError as lost:
            raise _lost(lost, is_start=is_start) from lost
        if kind == REFUSAL:
            raise self._failed(worker, **answer)
        try:
            return read(answer)
        except BROKEN as error:
            what = f"gave an invalid answer ({error!r})"
            raise WorkerFault(what, "check that both sides run the same pytest-dsocr", is_lost=True) from error

    def _failed(self, worker: ChildProcess, kind: str, message: str, traceback: str) -> WorkerFault:
        if not traceback:
            return WorkerFault(f"refused: {message}", "", worker.trace())
        advice = "see its traceback for the cause"
        if kind in MEMORY_ERRORS or "allocate memory" in message:
            advice = "use a smaller preset or checkpoint, bfloat16, or a device with more memory"
        elif kind in IMPORT_ERRORS and self._is_vendors:
            has = ", ".join(f"{name} {version}" for name, version in self._versions.items())
            setup = f"`dsocr vendor setup {self._load['vendor']}`"
            advice = f"create its environment with {setup} ({self._python} has {has})"
        return WorkerFault(f"answered {kind}: {message}", advice, traceback.rstrip())

    def _message(self, request: str, faults: Sequence[WorkerFault]) -> str:
        """Return one sentence with the events and the advice, then the end of the last worker's output."""
        whose = "vendor" if self._is_vendors else "engine"
        first, *others = faults
        events = [f"{first.phase}it {first.what}"]
        for fault in others:
            events.append(f"{'' if first.phase else fault.phase}its replacement {fault.what}")
        last = faults[-1]
        sentence = f"the {whose}'s worker could not answer {request}: {', and '.join(events)}"
        advice = f"; {last.advice}" if last.advice else ""
        trace = "".join(f"\n  | {line}" for line in last.trace.splitlines())
        return sentence + advice + (f"\nThe end of its output:{trace}" if trace else "")


def _lost(lost: ProcessLostError, *, is_start: bool) -> WorkerFault:
    what, advice = lost.how, "see its output for the cause"
    if lost.is_hung:
        what = f"made no progress for {lost.limit_s:g} s and was ended"
        advice = f"raise the {'start' if is_start else 'time'} limit if it was only slow"
    elif lost.how.endswith("SIGKILL"):
        advice = "if memory ran out, provide more or use a smaller case"
    return WorkerFault(what, advice, lost.trace, is_lost=True)
