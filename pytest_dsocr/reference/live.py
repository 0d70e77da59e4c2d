"""The vendor's code live, in a worker of its own environment, behind the interface of every reference.

The engine, where it stands in for that code, answers from such a worker as well.
"""

import logging
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from torch import Tensor

from pytest_dsocr.base.process import IDLE_WAITS
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import START_LIMIT_S
from pytest_dsocr.records.packing import unpack
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.reference.environment import command_in
from pytest_dsocr.reference.protocol import OnProgress, ReferenceFaultError, pack_case
from pytest_dsocr.subjects.isolation.transport import REFUSAL, ChildProcess, ProcessLostError

ReadT = TypeVar("ReadT")
VENDOR_RUNTIME = "pytest_dsocr.reference.vendor_code.runtime:VendorRuntime"
LOG = logging.getLogger(__name__)
ATTEMPTS = 2
STARTING = ("versions", "import", "load")
"""Requests that end with the imports of a process, or with its weights."""
BROKEN = (ValueError, TypeError, LookupError, AttributeError)
IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError")
MEMORY_ERRORS = ("MemoryError", "OutOfMemoryError")
FLAGS = ("-B", "-X", "faulthandler")
"""Write nothing beside the vendor's files; say where it was that C crashed."""
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}


@dataclass(frozen=True)
class Response:
    """What a worker answers: plain values, the tensors that go with them, and how it was made."""

    result: Any
    tensors: Mapping[str, Tensor]
    provenance: Mapping[str, Any]


Reader = Callable[[Response], ReadT]
"""Makes of an answer what was asked for; where it does not hold together, it raises one of :data:`BROKEN`."""


class WorkerFault(Exception):  # noqa: N818 - a part of what a ReferenceFaultError says
    """What went wrong with a worker.

    Args:
        what: it did, such as ``was killed by SIGKILL``.
        advice: what to do about it.
        trace: the end of what it said.
        is_lost: whether the process no longer answers, so that another may be tried.
    """

    def __init__(self, what: str, advice: str, trace: str = "", *, is_lost: bool = False) -> None:
        super().__init__(what)
        self.what, self.advice, self.trace, self.is_lost = what, advice, trace, is_lost
        self.phase = ""


class Client:
    """Keep a worker as long as one is needed. For one thread at a time.

    Args:
        python: the interpreter that runs the worker.
        load: the arguments of ``load``, which each worker is asked first.
        time_limit_s: seconds without any sign of progress after which a worker is given up.
        start_limit_s: the same while it starts and loads.
        on_progress: called with every sign of progress.
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

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker, while there is one."""
        return self._worker.pid if self._worker else None

    def import_code(self) -> Mapping[str, str]:
        """Have a worker import the vendor's files, and load nothing; return the versions in its environment.

        Raises:
            ReferenceFaultError: where that fails.
        """
        vendor = self._load["vendor"]
        self._insist(f"import({vendor})", lambda: self._request(self._started(), "import", {"vendor": vendor}, bool))
        return self._versions

    def start(self) -> Provenance:
        """Start a worker where none has loaded; return how it answers.

        Raises:
            ReferenceFaultError: where that fails, now and of every later request.
        """
        return self._insist(f"load({self._load['checkpoint']})", lambda: self._loaded()[1])

    def ask(self, subject: str, method: str, params: Mapping[str, Any], read: Reader[ReadT]) -> ReadT:
        """Send a request about ``subject``; a worker that is lost over it is replaced once.

        Raises:
            ReferenceFaultError: where there is no answer.
        """
        return self._insist(f"{method}({subject})", lambda: self._request(self._loaded()[0], method, params, read))

    def close(self) -> None:
        """End the worker; a later request would start another."""
        if self._worker:
            self._worker.close()
        self._worker = self._provenance = None

    @property
    def _is_vendors(self) -> bool:
        """Whether it is the vendor's code that answers, and not the engine."""
        return self._load["vendor"] is not None

    def _insist(self, request: str, attempt: Callable[[], ReadT]) -> ReadT:
        faults = list(self._load_faults)
        while not faults or (faults[-1].is_lost and len(faults) < ATTEMPTS):
            if faults:
                LOG.warning("%s\nAnother is started in its place.", self._message(request, faults))
            try:
                return attempt()
            except WorkerFault as fault:
                faults.append(fault)
                if fault.is_lost or fault.phase:
                    self._drop()
            except BaseException:  # the worker is busy with a request that nobody waits for
                self._drop()
                raise
        if faults[-1].phase:
            self._load_faults = faults
        raise ReferenceFaultError(self._message(request, faults))

    def _drop(self) -> None:
        if self._worker:
            self._worker.kill()
        self.close()

    def _loaded(self) -> tuple[ChildProcess, Provenance]:
        try:
            worker = self._started()
            self._provenance = self._provenance or self._request(
                worker, "load", self._load, lambda answer: Provenance.from_json(answer.provenance)
            )
        except WorkerFault as fault:
            fault.phase = f"loading {self._load['checkpoint']}, "
            raise
        return worker, self._provenance

    def _started(self) -> ChildProcess:
        if self._worker is None:
            self._worker = self._process()
            self._versions = self._request(self._worker, "versions", {}, lambda answer: answer.result)
        return self._worker

    def _process(self) -> ChildProcess:
        """Start a worker, with a folder for its temporary files that goes with it."""
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
            raise WorkerFault(what, "name the environment that `dsocr vendor setup` made") from error
        weakref.finalize(process, shutil.rmtree, folder, ignore_errors=True)
        return process

    def _request(self, worker: ChildProcess, method: str, params: Mapping[str, Any], read: Reader[ReadT]) -> ReadT:
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
            return read(Response(**answer))
        except BROKEN as error:
            what = f"gave an answer that does not hold together ({error!r})"
            raise WorkerFault(what, "see that both sides run the same pytest-dsocr", is_lost=True) from error

    def _failed(self, worker: ChildProcess, kind: str, message: str, traceback: str) -> WorkerFault:
        if not traceback:
            return WorkerFault(f"refused: {message}", "", worker.trace())
        advice = "look for the cause in its traceback"
        if kind in MEMORY_ERRORS or "allocate memory" in message:
            advice = "give it a smaller preset or checkpoint, bfloat16, or a device with more memory"
        elif kind in IMPORT_ERRORS and self._is_vendors:
            has = ", ".join(f"{name} {version}" for name, version in self._versions.items())
            advice = f"make its environment with `dsocr vendor setup {self._load['vendor']}` ({self._python} has {has})"
        return WorkerFault(f"answered {kind}: {message}", advice, traceback.rstrip())

    def _message(self, request: str, faults: Sequence[WorkerFault]) -> str:
        """Say in one sentence what happened and what to do, with the end of what the last worker said below."""
        whose = "vendor" if self._is_vendors else "engine"
        first, *others = faults
        events = [f"{first.phase}it {first.what}"]
        for fault in others:
            events.append(f"{'' if first.phase else fault.phase}the one started in its place {fault.what}")
        last = faults[-1]
        sentence = f"the {whose}'s worker could not answer {request}: {', and '.join(events)}"
        advice = f"; {last.advice}" if last.advice else ""
        trace = "".join(f"\n  | {line}" for line in last.trace.splitlines())
        return sentence + advice + (f"\nThe end of what it said:{trace}" if trace else "")


def _lost(lost: ProcessLostError, *, is_start: bool) -> WorkerFault:
    what, advice = lost.how, "look for the cause in its output"
    if lost.is_hung:
        what = f"gave no sign of life for {lost.limit_s:g} s and was ended"
        advice = f"raise the {'start' if is_start else 'time'} limit if it was only slow"
    elif lost.how.endswith("SIGKILL"):
        advice = "if memory ran out, give it more or a smaller case"
    return WorkerFault(what, advice, lost.trace, is_lost=True)


class LiveReference(Client):
    """The vendor's code in a worker process; fulfils :class:`~pytest_dsocr.reference.protocol.Reference`.

    The worker starts with the first request, or with :meth:`start`, and loads the checkpoint once. A context manager,
    which ends it.

    Args:
        vendor: the folder with the vendor's files, the only code of others that is run; None of another runtime.
        checkpoint: ``mini``, a folder, ``synthetic:<name>``, or a name in the local hub cache.
        python: the interpreter of the vendor's environment; of the engine the caller's own.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: ``float32`` or ``bfloat16``.
        attention: ``eager`` or ``flash_attention_2``.
        time_limit_s: seconds without any sign of progress after which the worker is given up.
        start_limit_s: the same while it starts and loads.
        keep_values: have the tensors in the answers, beside their summaries.
        keep_files: keep the files that ``infer`` writes; see :attr:`Output.kept`.
        command: what the provenance names as the command.
        runtime: the :class:`~pytest_dsocr.reference.protocol.Runtime` that answers in the worker, as ``module:class``.
        on_progress: called with what is under way, how much of it is done, and its total, where that is known.
    """

    def __init__(
        self,
        vendor: Path | None,
        checkpoint: str,
        *,
        python: Path,
        device: str = "cpu",
        dtype: str = "float32",
        attention: str = "eager",
        time_limit_s: float = 600,
        start_limit_s: float = START_LIMIT_S,
        keep_values: bool = True,
        keep_files: bool = False,
        command: str = "",
        runtime: str = VENDOR_RUNTIME,
        on_progress: OnProgress | None = None,
    ) -> None:
        how = {"device": device, "dtype": dtype, "attention": attention, "command": command}
        load = {"runtime": runtime, "vendor": vendor and str(vendor.absolute()), "checkpoint": checkpoint, **how}
        super().__init__(python, load, time_limit_s, start_limit_s, on_progress)
        self.keep_values = keep_values
        self._files = Path(tempfile.mkdtemp(prefix="dsocr-files-")) if keep_files else None
        if self._files:
            weakref.finalize(self, shutil.rmtree, self._files, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def provenance(self) -> Provenance:
        """How its answers are made."""
        return self.start()

    def observe(self, case: Case, *, out: Path | None = None) -> ReferenceResult:
        """Run ``infer`` as it is and give all that was seen.

        Args:
            case: what to read.
            out: where the files that it writes are put, in addition to what is there.
        """
        kept = Path(tempfile.mkdtemp(dir=self._files)) if self._files and not out else None
        where: dict[str, Any] = {"out": out or kept} if out or kept else {}
        seen = self._ask(
            "observe",
            case,
            lambda answer: unpack(answer.result, answer.tensors, Provenance.from_json(answer.provenance)),
            keep_values=self.keep_values,
            **where,
        )
        return replace(seen, output=replace(seen.output, kept=kept)) if kept else seen

    def flops(self, case: Case) -> Mapping[str, int]:
        """Return each stage's operations as torch's counter sees them; ``decode`` is the first step's."""
        return self._ask("flops", case, lambda answer: dict(answer.result))

    def _ask(self, method: str, case: Case, read: Reader[ReadT], **params: Any) -> ReadT:
        return self.ask(case.id, method, {"case": pack_case(case), **params}, read)
