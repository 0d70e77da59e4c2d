"""References in worker processes: the vendor's code in its own environment, or the engine in the caller's."""

import shutil
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import START_LIMIT_S
from pytest_dsocr.records.packing import unpack
from pytest_dsocr.records.provenance import Provenance
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.reference.client import Client, Reader, ReadT
from pytest_dsocr.reference.protocol import OnProgress, pack_case

VENDOR_RUNTIME = "pytest_dsocr.reference.vendor_code.runtime:VendorRuntime"


class LiveReference(Client):
    """A runtime in a worker process as a :class:`~pytest_dsocr.reference.protocol.Reference`.

    The worker starts with the first request, or with :meth:`start`, and loads the checkpoint once. As a context
    manager, the reference ends its worker.

    Args:
        vendor: folder of the vendor's files, the only foreign code that is run; None for another runtime.
        checkpoint: ``mini``, a folder, ``synthetic:<name>``, or a name in the local hub cache.
        python: the interpreter of the vendor's environment, or for the engine the caller's own.
        device: ``cpu``, ``cuda`` or ``cuda:N``.
        dtype: ``float32`` or ``bfloat16``.
        attention: ``eager`` or ``flash_attention_2``.
        time_limit_s: seconds without progress after which the worker is ended.
        start_limit_s: the same while it starts and loads.
        keep_values: return tensors besides their summaries.
        keep_files: keep the files that ``infer`` writes; see :attr:`Output.kept`.
        command: the command in the provenance.
        runtime: the :class:`~pytest_dsocr.reference.protocol.Runtime` in the worker, as ``module:class``.
        on_progress: see :data:`~pytest_dsocr.reference.protocol.OnProgress`.
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
        load = {"runtime": runtime, "vendor": vendor and vendor.absolute(), "checkpoint": checkpoint, **how}
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
        """Provenance of its answers."""
        return self.start()

    def observe(self, case: Case) -> ReferenceResult:
        """Run the unchanged ``infer`` on a case and return its result."""
        kept = Path(tempfile.mkdtemp(dir=self._files)) if self._files else None
        seen = self._ask(
            "observe",
            case,
            lambda answer: unpack(answer[0], answer[1], Provenance.from_json(answer[2])),
            keep_values=self.keep_values,
            **({"out": kept} if kept else {}),
        )
        return replace(seen, output=replace(seen.output, kept=kept)) if kept else seen

    def flops(self, case: Case) -> Mapping[str, int]:
        """Return the operations of each stage by torch's counter; ``decode`` is the first step."""
        return self._ask("flops", case, dict)

    def _ask(self, method: str, case: Case, read: Reader[ReadT], **params: Any) -> ReadT:
        return self.ask(case.id, method, {"case": pack_case(case), **params}, read)
