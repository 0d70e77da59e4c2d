"""Configuration of a run: subject, reference, pages, limits, and the level of access that a subject offers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Literal, NamedTuple

from pytest_dsocr.base.errors import DsocrError

START_LIMIT_S = 1800.0
"""Default limit for starting a process and loading weights there, from a disk that may be slow."""


class Level(IntEnum):
    """Level of access that a subject offers; each level includes the lower ones."""

    TEXT = 0
    INPUTS = 1
    STAGES = 2
    MODULES = 3

    def __str__(self) -> str:
        return f"L{self.value}"

    @property
    def meaning(self) -> str:
        """Description of the level."""
        return ("text", "inputs", "stages and cache", "named modules")[self]

    @property
    def hides(self) -> str:
        """Sentence that names what no suite can check at this level; empty if nothing is hidden."""
        return HIDDEN[self]


HIDDEN = (
    "not looked at with text alone: pixels, stages and cache, and whatever changes no token of these pages",
    "not looked at with inputs and text alone: stages and cache, and whatever changes no token of these pages",
    "",
    "",
)


class SubjectFaultError(DsocrError):
    """The subject raised, or returned an invalid answer: always an error, never a verdict.

    Args:
        stage: ``load``, ``tokenizer``, ``vision``, ``prefill``, ``decode``, ``read``, ``postprocess`` or ``close``.
        message: one sentence: what was wrong, then what to do.
    """

    def __init__(self, stage: str, message: str) -> None:
        super().__init__(message)
        self.stage = stage


class NotOfferedError(DsocrError):
    """The subject does not offer what the test needs: the test is skipped, which is neither an error nor a pass.

    Args:
        message: one sentence: what is not offered.
        refused: the preset or the prompt that it does not offer, such as ``preset tiny``, if that is the reason.
    """

    def __init__(self, message: str, refused: str = "") -> None:
        super().__init__(message)
        self.refused = refused


class SubjectHungError(SubjectFaultError):
    """The subject did not come back within the time limit."""


MOST = 100_000


class Shard(NamedTuple):
    """Part ``number`` of ``of`` equal parts of a run, counted from 1."""

    number: int
    of: int

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def read(cls, text: str) -> Shard:
        """Read ``i/n``; raise ``ValueError`` if it is not a valid part."""
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
"""Names of the things that a run may be allowed to miss."""


@dataclass(frozen=True)
class Setup:
    """Settings that a subject is built with; a factory that takes an argument receives it."""

    checkpoint: str = "mini"
    """``mini``, a folder, ``synthetic:NAME``, or a hub name, as the user typed it."""
    device: str = "cpu"
    """``cpu``, ``cuda`` or ``cuda:N``."""
    dtype: str = "float32"
    attention: str = "eager"


@dataclass(frozen=True)
class Config:
    """Settings of a run, one field for each option."""

    subject: str
    isolate: bool
    subject_time_limit: float
    start_limit: float
    checkpoint: str
    """Name after ``model`` and a colon, if given."""
    model: str | None
    reference: Path | Literal["engine"] | None
    """None: the recordings of the golden folder. ``engine``: these, and the engine for cases that they lack."""
    kept_answers: Path | Literal["off"] | None
    """Folder of the engine's answers to earlier runs; None: the usual one. ``off``: none are kept or used."""
    vendor_env: Path | None
    time_limit: float
    pages: tuple[str, ...]
    shard: Shard | None
    presets: tuple[str, ...]
    prompts: tuple[str, ...]
    repeat: int
    """Number of times that one process reads each page."""
    max_new_tokens: int | None
    device: str
    dtype: str
    attention: str
    reference_device: str | None
    """None, also in the next two fields: the nearest recording to the subject's own; a given value must be recorded."""
    reference_dtype: str | None
    reference_attention: str | None
    tolerances: Mapping[str, float]
    quantization_budget: Mapping[str, float]
    """Allowed losses by name; empty if differences are judged one by one."""
    max_slowdown: Mapping[str, float]
    """By quantity, or ``*`` for each."""
    max_rounds: int
    baseline_update: bool
    baseline_days: float
    allow_missing: frozenset[str]
    explain: float
    """Seconds that a search for a failure's explanation may take; 0 for none."""
    level: Level | None
    no_skip: bool
    out: Path | None
    golden: Path
    xfails: Path | None
    given_by: Mapping[str, str]
    """Source of each given option: the flag, the variable, or the key and its ini file."""

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
        """Settings that the subject is built with."""
        return Setup(self.checkpoint, self.device, self.dtype, self.attention)
