"""What the suites ask of the reference: the vendor's code live, a recording of it, or the engine in its place."""

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
"""Called with what is under way, how much of it is done, and its total, where that is known."""


class ReferenceFaultError(MachineError):
    """The reference could not answer, which says nothing about the subject: never a verdict, always an error."""


class NoRecordingError(ReferenceFaultError):
    """There is no recording of the run's key."""


class NotRecordedError(MachineError):
    """The recording does not hold what was asked for; the comparison is then NOT-COMPARED."""


class Reference(Protocol):
    """The vendor's code, live or recorded, or the engine in its place.

    Every method raises :class:`ReferenceFaultError` where it cannot answer.
    A recording raises :class:`NotRecordedError` for what it lacks.
    """

    @property
    def provenance(self) -> Provenance:
        """How its answers are made."""

    def observe(self, case: Case) -> ReferenceResult:
        """Run ``infer`` as it is, artefacts included, and give all that was seen."""

    def close(self) -> None:
        """Release what it holds."""


class Runtime(Protocol):
    """What answers in a worker process, made by its ``load``; it may have other methods that take and give JSON."""

    @property
    def provenance(self) -> Provenance:
        """How its answers are made."""

    def observe(self, case: Case, *, keep_values: bool = False) -> ReferenceResult:
        """Read the page and give all that was seen."""


def provenance_of(
    checkpoint: Checkpoint, device: str, dtype: str, attention: str, command: str, **made: Any
) -> Provenance:
    """Return the provenance of what is answered here and now; ``device`` is a kind, such as ``nvidia-h200``."""
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
    """Take a case apart for JSON; its page is named so that any process finds it."""
    return {**case.described, "page": str(case.page.absolute())}


def unpack_case(packed: Mapping[str, Any]) -> Case:
    """Put a case together again."""
    return Case.from_json(Path(packed["page"]), packed)
