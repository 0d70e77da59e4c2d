"""The vendor's code live, in a worker of its own environment, behind the interface of every reference.

The session, where it stands in for that code, answers from such a worker as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import InputsDigest, Observation
from pytest_dsocr.observation.packing import unpack, unpack_inputs
from pytest_dsocr.observation.provenance import Provenance
from pytest_dsocr.reference.live.client import Client, Reader, Told
from pytest_dsocr.reference.live.wire import pack_case
from pytest_dsocr.reference.protocol import OnProgress

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
