"""What a run compares, how, which part of its pages, and the level of access that its subject offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Literal, NamedTuple

from pytest_dsocr.foundation.errors import DsocrError

START_LIMIT_S = 1800.0
"""Default limit for starting a process and loading weights there, from a disk that may be slow."""


class Level(IntEnum):
    """What a subject lets itself be asked; each level holds those below it."""

    TEXT = 0
    INPUTS = 1
    STAGES = 2
    MODULES = 3

    def __str__(self) -> str:
        return f"L{self.value}"

    @property
    def meaning(self) -> str:
        """What is offered, in words."""
        return ("text", "inputs", "stages and cache", "named modules")[self]

    @property
    def hides(self) -> str:
        """What no suite can look at, in a sentence; empty where a subject offers all."""
        return HIDDEN[self]


HIDDEN = (
    "not looked at with text alone: pixels, stages and cache, and whatever changes no token of these pages",
    "not looked at with inputs and text alone: stages and cache, and whatever changes no token of these pages",
    "",
    "",
)


class SubjectFaultError(DsocrError):
    """The subject raised, or returned what is no answer; never a verdict, always an error.

    Args:
        stage: ``load``, ``tokenizer``, ``vision``, ``prefill``, ``decode``, ``read``, ``postprocess`` or ``close``.
        message: one sentence: what was wrong, then what to do.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class NotOfferedError(DsocrError):
    """The subject does not offer what is asked of it: skipped, and neither a fault nor a pass.

    Args:
        message: one sentence: what is not offered.
        refused: the preset or the prompt that it does not offer, such as ``preset tiny``, if that is why.
    """

    def __init__(self, message: str, refused: str = "") -> None:
        super().__init__(message)
        self.refused = refused


class SubjectHungError(SubjectFaultError):
    """The subject did not come back within the time limit."""


MOST = 100_000


class Shard(NamedTuple):
    """One part of several, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def read(cls, text: str) -> Shard:
        """Read ``i/n``; raise ``ValueError`` where it is no part of anything."""
        number, of = (int(part) if part.isdecimal() else 0 for part in text.split("/"))
        if not 1 <= number <= of <= MOST:
            raise ValueError(text)
        return cls(number, of)

    @property
    def is_first(self) -> bool:
        """Whether what belongs to no page is run here."""
        return self.number == 1

    def has(self, index: int) -> bool:
        """Return whether the item at ``index`` of the full list, from 0 on, is in this shard."""
        return index % self.of == self.number - 1


MISSING = ("baseline", "gpu", "recording", "snapshot", "timings", "vendor")
"""What may be allowed to be missing from a run."""


@dataclass(frozen=True)
class Setup:
    """What a subject is made for; a factory that takes an argument is given this."""

    checkpoint: str = "mini"
    """``mini``, a folder, ``synthetic:NAME``, or a hub name, as the user typed it."""
    device: str = "cpu"
    """``cpu``, ``cuda`` or ``cuda:N``."""
    dtype: str = "float32"
    attention: str = "eager"


@dataclass(frozen=True)
class Config:
    """What a run compares, and how; the fields are the options."""

    subject: str
    isolate: bool
    subject_time_limit: float
    start_limit: float
    checkpoint: str
    """Behind ``model`` and a colon, where that is given."""
    model: str | None
    reference: Path | Literal["session"] | None
    """None for the recordings of the golden folder; ``session`` for these, and the session where they lack a case."""
    vendor_env: Path | None
    time_limit: float
    pages: tuple[str, ...]
    shard: Shard | None
    presets: tuple[str, ...]
    prompts: tuple[str, ...]
    repeat: int
    """How often each page is read by one process."""
    max_new_tokens: int | None
    device: str
    dtype: str
    attention: str
    reference_device: str | None
    """As the two below: None for the subject's, where the nearest recording serves; one that is named must be there."""
    reference_dtype: str | None
    reference_attention: str | None
    tolerances: Mapping[str, float]
    budget: Mapping[str, float]
    """What may be lost, by name; empty where differences are judged one by one."""
    slower: Mapping[str, float]
    """By quantity, or ``*`` for each."""
    rounds: int
    baseline_update: bool
    baseline_days: float
    may_miss: frozenset[str]
    explain: float
    """Seconds that a search for a failure's explanation may take; 0 for none."""
    level: Level | None
    no_skip: bool
    out: Path | None
    golden: Path
    xfails: Path | None
    given_by: Mapping[str, str]
    """Where each option was given: the flag, the variable, or the key and its ini file; without those that were not."""

    @property
    def reference_key(self) -> tuple[str, str, str]:
        """The reference's device, dtype and attention."""
        return (
            self.reference_device or self.device,
            self.reference_dtype or self.dtype,
            self.reference_attention or self.attention,
        )

    @property
    def setup(self) -> Setup:
        """What the subject is made for."""
        return Setup(self.checkpoint, self.device, self.dtype, self.attention)
