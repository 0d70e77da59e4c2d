"""A night: its parts, its configuration, and what it has done so far, in a file from which the next one goes on."""

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from os.path import normpath
from pathlib import Path
from typing import Any, Literal

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.foundation.process import commit_here
from pytest_dsocr.foundation.reading import Format, toml
from pytest_dsocr.pages.page_list import SUBSETS
from pytest_dsocr.report.file import now, read_result


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


STATE_NAME = "night.json"
PASSES, WRONG, MACHINE, SLOWER, INCOMPLETE = 0, 1, 10, 11, 12
"""Exit statuses: of ``dsocr compare``, and of a night in which nothing is wrong and parts were left out."""
GRAVEST_FIRST = (WRONG, MACHINE, SLOWER, INCOMPLETE, PASSES)
WORDS = {PASSES: "passes", WRONG: "wrong", MACHINE: "machine", SLOWER: "slower", INCOMPLETE: "incomplete"}
LASTING = (PASSES, WRONG, SLOWER)
"""What a second run at the same commit would only find again."""


class Step(StrEnum):
    """How far a job is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    ENDED = "ended"
    """Before its own end."""
    LEFT_OUT = "left out"


@dataclass
class Entry:
    """One job, a part or a batch of its pages: one process; and what became of it."""

    name: str
    part: str
    pages: tuple[str, ...]
    key: str = ""
    """Of all that its result depends on; empty where that is not known."""
    step: Step = Step.WAITING
    status: int | None = None
    seconds: float = 0.0
    why: str = ""
    """Why it was left out or ended."""
    verdict: str = ""
    lacking: tuple[str, ...] = ()
    """What its result says was missing, and the configuration does not allow."""
    ended: str = ""
    command: str = ""

    @property
    def grade(self) -> int | None:
        """Its exit status as one of the night's; None while there is none."""
        if self.step is Step.LEFT_OUT:
            return INCOMPLETE
        if self.step is Step.ENDED:
            return MACHINE
        if self.status is None:
            return None
        if self.part == DOCTOR:
            return MACHINE if self.status else PASSES
        if self.status == PASSES and self.lacking:
            return INCOMPLETE
        return self.status if self.status in WORDS else MACHINE

    @property
    def word(self) -> str:
        """It in a word."""
        return WORDS[self.grade] if self.step is Step.DONE and self.grade is not None else str(self.step)


@dataclass
class NightState:
    """A run of all jobs."""

    commit: str | None
    config: Config
    started: str = field(default_factory=now)
    ended: str = ""
    entries: list[Entry] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    format: Literal[1] = 1

    @property
    def status(self) -> int:
        """The worst of its parts; one in which nothing was run is no pass."""
        grades = {entry.grade for entry in self.entries} - {None}
        return next((grade for grade in GRAVEST_FIRST if grade in grades), MACHINE)

    @property
    def verdict(self) -> str:
        """The same in words."""
        if not self.ended:
            return "not finished: it goes on, or died"
        worse = [f"{entry.name} {entry.word}" for entry in self.entries if entry.grade != PASSES]
        return WORDS[self.status] + (f": {', '.join(worse)}" if worse else "")

    def write(self, out: Path) -> None:
        """Write what is known now."""
        content = {"status": self.status if self.ended else None, "verdict": self.verdict}
        write_whole(out / STATE_NAME, (json.dumps({**content, **asdict(self)}, indent=1) + "\n").encode())


NIGHTS = Format(NightState, "run it again")


def earlier(out: Path) -> dict[str, Entry]:
    """Return what the night before did there, by name; nothing where it is damaged or of another format."""
    try:
        return {entry.name: entry for entry in NIGHTS.read(out / STATE_NAME).entries}
    except DsocrError:
        return {}


def is_whole(entry: Entry, folder: Path) -> bool:
    """Return whether a job's result is there to its end, and would only be found again."""
    lasts = entry.step is Step.DONE and entry.grade in LASTING and entry.part != DOCTOR
    return lasts and bool(result_in(folder))


def result_in(folder: Path) -> Mapping[str, Any]:
    """Return what a job wrote to its end; an empty result where there is none."""
    try:
        return read_result(folder)
    except DsocrError:
        return {}


def code_here(named: str = "") -> tuple[str | None, str]:
    """Return the commit, and what identifies the code: with what differs from the commit; empty where that is unknown.

    Args:
        named: what names the code where git does not.
    """
    commit = commit_here()
    if commit is None:
        return named or None, named
    diff = subprocess.run(["git", "diff", "HEAD", "--binary"], capture_output=True, check=False)
    return commit, f"{commit} {hashlib.sha256(diff.stdout).hexdigest()}"


def key_of(job: Entry, command: Sequence[str], variables: Iterable[tuple[str, str]], code: str, config: Config) -> str:
    """Return the hash of all that a job's result depends on; empty where the code is unknown."""
    named = {name: value for name, value in os.environ.items() if name.startswith(("DSOCR_", "CUDA_", "OMP_"))}
    paths = [
        Path(text) for text in (*job.pages, config.checkpoint, config.vendor, config.golden, config.xfails) if text
    ]
    content = [code, [*command], sorted({**named, **dict(variables)}.items()), [_stamps(path) for path in paths]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest() if code else ""


def _stamps(path: Path) -> list[tuple[str, int, int]]:
    """Return name, size and time of a file, or of all in a folder."""
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    found = [(str(file), file.stat()) for file in files if file.is_file()]
    return [(name, stamp.st_size, stamp.st_mtime_ns) for name, stamp in found]
