"""The vendor's code live, in a worker of its own environment, behind the interface of every reference.

The session, where it stands in for that code, answers from such a worker as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Self, TypeVar

from torch import Tensor

from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import InputsDigest, Observation
from pytest_dsocr.observation.packing import unpack, unpack_inputs
from pytest_dsocr.observation.provenance import Provenance
from pytest_dsocr.reference.process import WorkerFault, WorkerProcess
from pytest_dsocr.reference.protocol import OnProgress, ReferenceFaultError
from pytest_dsocr.reference.wire import Failure, Hello, Request, Response, pack_case, read_tensors

Told = TypeVar("Told")
Reader = Callable[[Response, Mapping[str, Tensor]], Told]
"""Makes of an answer what was asked for; where it does not hold together, it raises one of :data:`BROKEN`."""

LOG = logging.getLogger(__name__)

ATTEMPTS = 2
BROKEN = (ValueError, TypeError, LookupError, AttributeError, OSError)
IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError")
MEMORY_ERRORS = ("MemoryError", "OutOfMemoryError")


class Client:
    """Has a worker as long as one is needed. For one thread at a time.

    Args:
        python: the interpreter that runs the worker.
        load: the arguments of ``load``, which each worker is asked first.
        time_limit_s: seconds without any sign of progress after which a worker is given up.
        on_progress: called with every sign of progress.
    """

    def __init__(
        self, python: Path, load: Mapping[str, Any], time_limit_s: float, on_progress: OnProgress | None
    ) -> None:
        self._python, self._load = python, load
        self._time_limit_s, self._on_progress = time_limit_s, on_progress
        self._worker: WorkerProcess | None = None
        self._hello: Hello | None = None
        self._provenance: Provenance | None = None
        self._load_faults: Sequence[WorkerFault] = ()
        self._ids = count(1)
        self._is_given_up = False

    @property
    def _is_vendors(self) -> bool:
        """Whether it is the vendor's code that answers, and not the session."""
        return self._load["vendor"] is not None

    @property
    def pid(self) -> int | None:
        """The process id of the worker, while there is one."""
        return self._hello.pid if self._hello else None

    def versions(self) -> Mapping[str, str]:
        """Give the versions of Python and of the packages in the worker's environment, without loading anything.

        Raises:
            ReferenceFaultError: where no worker can be started.
        """
        return self._insist(f"load({self._load['checkpoint']})", self._greeted).versions

    def start(self) -> Provenance:
        """Have a worker that has loaded; gives how it answers.

        Raises:
            ReferenceFaultError: where that fails, now and of every later request.
        """
        return self._insist(f"load({self._load['checkpoint']})", lambda: self._loaded()[1])

    def ask(self, subject: str, method: str, params: Mapping[str, Any], read: Reader[Told]) -> Told:
        """Have a request about ``subject`` answered; a worker that is lost over it is replaced once.

        Raises:
            ReferenceFaultError: where there is no answer.
        """
        return self._insist(f"{method}({subject})", lambda: self._request(self._loaded()[0], method, params, read))

    def close(self) -> None:
        """End the worker; a later request would start another."""
        if self._worker:
            self._worker.close()
        self._worker = self._hello = self._provenance = None

    def give_up(self) -> None:
        """End the worker at once; a request under way in another thread is not answered."""
        self._is_given_up = True
        if self._worker:
            self._worker.end()

    def _insist(self, request: str, attempt: Callable[[], Told]) -> Told:
        faults = list(self._load_faults)
        while not faults or (faults[-1].is_lost and len(faults) < ATTEMPTS and not self._is_given_up):
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

    def _greeted(self) -> Hello:
        with self._loading():
            self._worker = self._worker or WorkerProcess(self._python, self._time_limit_s, apart=self._is_vendors)
            while self._hello is None:
                message = self._worker.receive()
                if not isinstance(message, Hello):
                    raise self._worker.loss("did not say what it is", "find out what writes to its pipe")
                self._hello = message
        return self._hello

    def _loaded(self) -> tuple[WorkerProcess, Provenance]:
        with self._loading():
            self._worker = self._worker or WorkerProcess(self._python, self._time_limit_s, apart=self._is_vendors)
            self._provenance = self._provenance or self._request(self._worker, "load", self._load, _provenance)
        return self._worker, self._provenance

    @contextmanager
    def _loading(self) -> Iterator[None]:
        try:
            yield
        except WorkerFault as fault:
            fault.phase = f"loading {self._load['checkpoint']}, "
            raise

    def _request(self, worker: WorkerProcess, method: str, params: Mapping[str, Any], read: Reader[Told]) -> Told:
        request = Request(next(self._ids), method, dict(params))
        worker.send(request)
        answer = self._answer(worker, request)
        try:
            return read(answer, read_tensors(worker.folder / f"{answer.id}.safetensors", answer.tensors))
        except BROKEN as error:
            advice = f"see that {worker.folder.parent} has room"
            raise worker.loss(f"gave an answer that does not hold together ({error!r})", advice) from error

    def _answer(self, worker: WorkerProcess, request: Request) -> Response:
        while True:
            message = worker.receive()
            if isinstance(message, Hello):
                self._hello = message
            elif message.id != request.id:
                what = f"answered request {message.id} in place of {request.id}"
                raise worker.loss(what, "find out what writes to its pipe")
            elif isinstance(message, Response):
                return message
            elif isinstance(message, Failure):
                raise self._failed(worker, message)
            elif self._on_progress:
                self._on_progress(message.what, message.done, message.total)

    def _failed(self, worker: WorkerProcess, failure: Failure) -> WorkerFault:
        trace = worker.trace(failure.traceback)
        if not failure.traceback:
            return WorkerFault(f"refused: {failure.message}", "", trace)
        return WorkerFault(f"answered {failure.kind}: {failure.message}", self._advice(failure), trace)

    def _advice(self, failure: Failure) -> str:
        if failure.kind in IMPORT_ERRORS:
            found = self._hello.versions if self._hello else {}
            has = ", ".join(f"{name} {version}" for name, version in found.items())
            if not self._is_vendors:
                return f"see that {self._python} imports all that pytest-dsocr needs"
            return f"make its environment with `dsocr vendor setup {self._load['vendor']}` ({self._python} has {has})"
        if failure.kind in MEMORY_ERRORS or "allocate memory" in failure.message:
            return "give it a smaller preset or checkpoint, bfloat16, or a device with more memory"
        return "look for the cause in its traceback"

    def _message(self, request: str, faults: Sequence[WorkerFault]) -> str:
        return _told("vendor" if self._is_vendors else "session", request, faults)


def _provenance(answer: Response, _: Mapping[str, Tensor]) -> Provenance:
    return Provenance.from_json(answer.provenance)


def _told(whose: str, request: str, faults: Sequence[WorkerFault]) -> str:
    """Say in one sentence what happened and what to do, with the end of the last worker's stderr below."""
    first, *others = faults
    events = [f"{first.phase}it {first.what}"]
    for fault in others:
        events.append(f"{'' if first.phase else fault.phase}the one started in its place {fault.what}")
    last = faults[-1]
    sentence = f"the {whose}'s worker could not answer {request}: {', and '.join(events)}"
    advice = f"; {last.advice}" if last.advice else ""
    trace = "".join(f"\n  | {line}" for line in last.trace.splitlines())
    return sentence + advice + (f"\nThe end of its stderr:{trace}" if trace else "")


VENDOR_RUNTIME = "pytest_dsocr.reference.vendor_code.runtime:VendorRuntime"


class LiveReference:
    """The vendor's code in a worker process; fulfils :class:`~pytest_dsocr.reference.protocol.Reference`.

    The worker starts with the first request, or with :meth:`start`, and loads the checkpoint once. A context manager,
    which ends it.

    Args:
        vendor: the folder with the vendor's files, the only code of others that is run; None of another runtime.
        checkpoint: ``mini``, a folder, ``synthetic:<name>``, or a name in the local hub cache.
        python: the interpreter of the vendor's environment; of the session the caller's own.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: ``float32`` or ``bfloat16``.
        attention: ``eager`` or ``flash_attention_2``.
        time_limit_s: seconds without any sign of progress after which the worker is given up.
        keep_values: have the tensors in the answers, beside their summaries.
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
        keep_values: bool = True,
        command: str = "",
        runtime: str = VENDOR_RUNTIME,
        on_progress: OnProgress | None = None,
    ) -> None:
        load = {
            "runtime": runtime,
            "vendor": vendor and str(vendor.absolute()),
            "checkpoint": checkpoint,
            "device": device,
            "dtype": dtype,
            "attention": attention,
            "command": command,
        }
        self._client = Client(python, load, time_limit_s, on_progress)
        self.keep_values = keep_values

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Provenance:
        """Have a worker that has loaded the checkpoint; gives how its answers are made.

        Raises:
            ReferenceFaultError: where it cannot; every later request then fails as this one did.
        """
        return self._client.start()

    def versions(self) -> Mapping[str, str]:
        """Give the versions in its environment, without loading anything; raise as :meth:`start` does."""
        return self._client.versions()

    def close(self) -> None:
        """End the worker."""
        self._client.close()

    def give_up(self) -> None:
        """End the worker at once, also where another thread waits for its answer."""
        self._client.give_up()

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id, while there is one."""
        return self._client.pid

    @property
    def provenance(self) -> Provenance:
        """How its answers are made."""
        return self.start()

    def inputs(self, case: Case) -> InputsDigest:
        """Give what ``infer`` hands to ``generate``."""
        return self._ask(
            "inputs",
            case,
            lambda answer, tensors: unpack_inputs(answer.result, tensors),
            keep_values=self.keep_values,
        )

    def observe(self, case: Case, *, out: Path | None = None, keep_logits: bool = False) -> Observation:
        """Run ``infer`` as it is and give all that was seen.

        Args:
            case: what to read.
            out: where the files that it writes are put, in addition to what is there.
            keep_logits: have all logits of every step: half a megabyte a token of the vendor's vocabulary.
        """
        return self._ask(
            "observe",
            case,
            lambda answer, tensors: unpack(answer.result, tensors, Provenance.from_json(answer.provenance)),
            keep_values=self.keep_values,
            keep_logits=keep_logits,
            out=out and str(out.absolute()),
        )

    def stage_times(self, case: Case, turns: int = 5) -> Mapping[str, tuple[float, ...]]:
        """Give each stage's milliseconds, one for each of ``turns`` runs."""
        return self._ask(
            "stage_times",
            case,
            lambda answer, _: {stage: tuple(runs_ms) for stage, runs_ms in answer.result.items()},
            turns=turns,
        )

    def flops(self, case: Case) -> Mapping[str, int]:
        """Give each stage's floating-point operations."""
        return self._ask("flops", case, lambda answer, _: dict(answer.result))

    def _ask(self, method: str, case: Case, read: Reader[Told], **params: Any) -> Told:
        return self._client.ask(case.id, method, {"case": pack_case(case), **params}, read)
