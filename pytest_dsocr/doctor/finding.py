"""The run that a machine is examined for, and the finding of a check."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pytest_dsocr.reference.environment import VENDOR_FILES


class Severity(StrEnum):
    """How a finding bears on the run."""

    OK = "ok"
    NOTE = "note"
    """Missing or unusual, and the run can do without."""
    FAULT = "fault"
    """The run needs it."""


@dataclass(frozen=True)
class Finding:
    """What was found of one thing."""

    check: str
    level: Severity
    message: str
    todo: str = ""
    """What to do about it; empty where that is nothing, or stands in ``message``."""

    @property
    def text(self) -> str:
        """Both in one sentence."""
        return f"{self.message}; {self.todo}" if self.todo else self.message


@dataclass(frozen=True)
class ExaminedRun:
    """The run that the machine is examined for."""

    checkpoint: str
    device: str
    dtype: str
    attention: str
    reference: Path | Literal["engine"] | None
    """As ``--dsocr-reference``; None for the recordings of ``golden``."""
    vendor_env: Path | None
    pages: tuple[str, ...]
    golden: Path
    out: Path
    """Where the run is to write."""

    @property
    def on_gpu(self) -> bool:
        """Whether it is to run on a GPU."""
        return self.device.startswith("cuda")

    @property
    def vendor(self) -> Path | None:
        """The folder with the vendor's files, where the reference is live."""
        folder = self.reference if isinstance(self.reference, Path) else None
        return folder if folder and any((folder / name).is_file() for name in VENDOR_FILES) else None

    @property
    def needs_recording(self) -> bool:
        """Whether the run has no reference without a recording."""
        return self.vendor is None and self.reference != "engine"


def needed(is_needed: bool) -> Severity:
    """Return the level of something that is not there."""
    return Severity.FAULT if is_needed else Severity.NOTE
