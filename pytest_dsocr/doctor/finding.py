"""The run to prepare for, and the result of a check."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pytest_dsocr.reference.environment import VENDOR_FILES


class Severity(StrEnum):
    """Severity of a finding; called with the rest of a finding, it makes one."""

    OK = "ok"
    NOTE = "note"
    """Missing or unusual, but not needed by the run."""
    FAULT = "fault"
    """Missing or broken, and needed by the run."""

    def __call__(self, check: str, message: str, todo: str = "") -> "Finding":
        """Return a finding of this severity."""
        return Finding(check, self, message, todo)


OK, NOTE, FAULT = Severity


@dataclass(frozen=True)
class Finding:
    """Result of a check for one thing."""

    check: str
    level: Severity
    message: str
    todo: str = ""
    """Advice; empty if there is nothing to do or ``message`` contains it."""

    @property
    def text(self) -> str:
        """The message and the advice in one sentence."""
        return f"{self.message}; {self.todo}" if self.todo else self.message


@dataclass(frozen=True)
class ExaminedRun:
    """Settings of the run to prepare for."""

    checkpoint: str
    device: str
    dtype: str
    attention: str
    reference: Path | Literal["engine"] | None
    """Value of ``--dsocr-reference``; None for the recordings in ``golden``."""
    vendor_env: Path | None
    pages: tuple[str, ...]
    golden: Path
    out: Path
    """Folder for the results of the run."""

    @property
    def on_gpu(self) -> bool:
        """Whether the run uses a GPU."""
        return self.device.startswith("cuda")

    @property
    def vendor(self) -> Path | None:
        """The folder with the vendor's files if the reference is live, else None."""
        folder = self.reference if isinstance(self.reference, Path) else None
        return folder if folder and any((folder / name).is_file() for name in VENDOR_FILES) else None

    @property
    def needs_recording(self) -> bool:
        """Whether the run has no reference without a recording."""
        return self.vendor is None and self.reference != "engine"


def needed(is_needed: bool) -> Severity:
    """Return the severity of a missing thing."""
    return Severity.FAULT if is_needed else Severity.NOTE
