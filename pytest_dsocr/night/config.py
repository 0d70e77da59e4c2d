"""The parts of a night, and its configuration file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from os.path import normpath
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.reading import Format, toml
from pytest_dsocr.pages.page_list import SUBSETS


@dataclass(frozen=True)
class Part:
    """One of the things that a night does."""

    suites: tuple[str, ...] = ()
    """None for ``dsocr doctor``."""
    first_pages: int = 0
    """How many pages it reads; 0 for every one, in batches."""
    is_live: bool = False
    """Whether the reference is the vendor's code, running."""
    is_timed: bool = False
    """Whether it needs a GPU that nobody else uses; what it could not judge is reported, and fails nothing."""


DOCTOR = "doctor"
PARTS: Mapping[str, Part] = {
    DOCTOR: Part(first_pages=-1),
    "recorded": Part(("contract", "parity", "reference")),
    "live": Part(("contract", "parity", "reference"), is_live=True),
    "cache": Part(("cache",), first_pages=2),
    "perf": Part(("perf",), first_pages=1, is_timed=True),
    "cost": Part(("cost",), first_pages=1),
}
"""In their usual order of worth."""
NAMED = ("checkpoint", "vendor", "vendor_env", "golden", "out", "history", "xfails")
"""Paths, relative to the file, where there is something of that name beside it."""


@dataclass(frozen=True)
class Config:
    """What a night does; the names are those of the file."""

    checkpoint: str = "mini"
    subject: str = "session"
    device: str = "cpu"
    gpus: tuple[int, ...] = ()
    """Which of those that the driver numbers; all that are visible, where it is empty."""
    workers: int = 1
    """Processes that share the pages on a CPU; on GPUs there is one for each."""
    dtype: str = "float32"
    attention: str = "eager"
    vendor: str = ""
    """Folder with the vendor's files, for the part that runs them live."""
    vendor_env: str = ""
    golden: str = ""
    pages: tuple[str, ...] = ("dev-3",)
    """In order of worth."""
    live_pages: tuple[str, ...] = ()
    """Of the live part; ``pages``, where it is empty."""
    batch: int = 0
    """Pages for one process; all, where it is 0. Fewer cost more loading, and lose less where the time is over."""
    max_new_tokens: int = 0
    """As many as the vendor's code, where it is 0."""
    minutes: float = 480
    """The time budget."""
    grace_seconds: float = 60
    """What a part gets to end itself when its time is over."""
    parts: tuple[str, ...] = ()
    """In order of worth; every one that there is, where it is empty, the live one with ``vendor`` alone."""
    level: str = ""
    """What the subject must offer, L0 to L3; tests above it are not run."""
    no_skip: bool = True
    """Whether every skipped test is a failure, as it should be of a subject that offers all that its level can."""
    may_miss: tuple[str, ...] = ()
    xfails: str = ""
    pytest: tuple[str, ...] = ()
    """More options of pytest's, for every part but the doctor."""
    out: str = "nightly-out"
    history: str = "nightly-history"
    """Folder that each night adds a file to; empty for none."""
    commit: str = ""
    """What names the code where git does not."""

    @property
    def on_gpu(self) -> bool:
        """Whether it runs on GPUs."""
        return self.device.startswith("cuda")


TABLES = Format(dict[str, Any], "give a configuration file in TOML", parse=toml, most_bytes=2**20)
CONFIGS = Format(Config, "see docs/running.md")


def read_config(path: Path, given: Mapping[str, Any] | None = None) -> Config:
    """Read the file; what is ``given`` counts before it.

    Raises:
        DsocrError: where it is not there, is not TOML, or says what nobody knows.
    """
    said = TABLES.read(path)
    names = [field.name for field in fields(Config)]
    if other := [name for name in said if name not in names]:
        raise DsocrError(f"{path}: there is no {other[0]!r}; there are {', '.join(names)}")
    CONFIGS.convert(said, path)
    if unknown := [name for name in said.get("parts", ()) if name not in PARTS]:
        raise DsocrError(f"{path}: there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in said.items()}
    try:
        config = Config(**{**_beside(path.absolute().parent, values), **(given or {})})
    except OSError as error:
        raise TABLES.fault(path, f"names what is no path ({error.strerror})") from error
    if "live" in config.parts and not config.vendor:
        raise DsocrError(f"{path}: the part live needs vendor, a folder with the vendor's Python files")
    return config


def _beside(home: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return paths as they are seen from the file; a word that is no path stays one."""
    found: dict[str, Any] = {"out": Config.out, "history": Config.history, **values}
    for name in NAMED:
        if (text := found.get(name)) and (name in ("out", "golden", "history") or (home / text).exists()):
            found[name] = normpath(home / text)
    for name in ("pages", "live_pages"):
        if name in values:
            found[name] = tuple(text if text in SUBSETS else normpath(home / text) for text in values[name])
    return found
