"""What is measured, by the names that baselines, histories and tables know it under."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pytest_dsocr.subjects.loading import VENDOR


@dataclass(frozen=True)
class Setting:
    """How a subject is set up; its device is told by the machine."""

    checkpoint: str
    checkpoint_sha256: str
    """Empty for one that only the subject can read."""
    dtype: str
    attention: str
    threads: int


@dataclass(frozen=True)
class Reading:
    """The page, and what is asked of it."""

    name: str
    sha256: str
    prompt: str
    preset: str
    max_new_tokens: int


@dataclass(frozen=True)
class Identity:
    """All that two measurements have to have in common to be compared, and which code was measured."""

    name: str
    """As the user named it."""
    commit: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    subject: str
    setup: Setting
    page: Reading

    def to_json(self) -> dict[str, Any]:
        """Give it as JSON values; the vendor's code is the same subject in whichever folder it lies."""
        subject = VENDOR.rstrip(":") if self.subject.startswith(VENDOR) else self.subject
        return {**asdict(self), "subject": subject}
