"""Protocol of references: the vendor's code live, a recording of it, or the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pytest_dsocr.base.errors import MachineError
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.provenance import Provenance, versions

if TYPE_CHECKING:
    from pytest_dsocr.engine.checkpoint import Checkpoint
    from pytest_dsocr.records.reference_result import ReferenceResult

OnProgress = Callable[[str, int, int | None], None]
"""Callback for progress: the activity, the amount done, and the total if known."""


class ReferenceFaultError(MachineError):
    """The reference could not answer: an error of the run, and no verdict on the subject."""


class NoRecordingError(ReferenceFaultError):
    """There is no recording of the run's key."""


class NotRecordedError(MachineError):
    """The recording lacks the requested case or fact; the comparison is then NOT-COMPARED."""


class Reference(Protocol):
    """The vendor's code live, a recording of it, or the engine.

    Every method raises :class:`ReferenceFaultError` if it cannot answer. A recording raises :class:`NotRecordedError`
    for a case that it lacks.
    """

    @property
    def provenance(self) -> Provenance:
        """Provenance of its answers."""

    def observe(self, case: Case) -> ReferenceResult:
        """Return the result of the unchanged ``infer`` for a case, with the files that it writes."""

    def close(self) -> None:
        """Release processes and memory."""


class Runtime(Protocol):
    """An implementation in a worker process, created by its ``load``.

    It may have other methods, with arguments and results that JSON can represent.
    """

    @property
    def provenance(self) -> Provenance:
        """Provenance of its answers."""

    def observe(self, case: Case, *, keep_values: bool = False) -> ReferenceResult:
        """Read the page and return the result, with ``keep_values`` including tensors."""


def provenance_of(
    checkpoint: Checkpoint, device: str, dtype: str, attention: str, command: str, **made: Any
) -> Provenance:
    """Return the provenance of answers that are made now; ``device`` is a kind, such as ``nvidia-h200``."""
    return Provenance(
        checkpoint=checkpoint.label,
        checkpoint_sha256=checkpoint.sha256,
        device=device,
        dtype=dtype,
        attention=attention,
        resampling=resampling(),
        versions=versions(),
        date=datetime.now(UTC).date().isoformat(),
        command=command,
        **made,
    )


def pack_case(case: Case) -> dict[str, Any]:
    """Convert a case to JSON values, with the absolute path of its page."""
    return {**case.described, "page": str(case.page.absolute())}


def unpack_case(packed: Mapping[str, Any]) -> Case:
    """Return the case of JSON values."""
    return Case.from_json(Path(packed["page"]), packed)
