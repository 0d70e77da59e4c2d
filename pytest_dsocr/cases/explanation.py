"""What was found by computing a stage that broke again under known mistakes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Explanation:
    """What explains a case's first divergence, or how far that was looked for."""

    text: str
    """A sentence, behind "explained"."""
    what: str = ""
    """The comparison that it is about; empty where nothing was tried."""
    mistakes: tuple[str, ...] = ()
    """The ids of the mistakes that it names."""
    is_proven: bool = False
    """Whether the session gives with one of them what the subject gave; else it only comes nearer, or none does."""
