"""A night in a few kilobytes, and the folder that such files are added to, and never changed in."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.foundation.reading import Format, Time
from pytest_dsocr.foundation.words import HASH_CHARACTERS
from pytest_dsocr.nights.cells import Cells, Wrong, cells_of, wrong_in
from pytest_dsocr.perf.history import Line

SUFFIX = ".night.json"
MOST_WRONG = 200


class Part(TypedDict):
    """What became of a job of a night."""

    name: str
    word: str
    seconds: Time
    pages: int
    why: str


@dataclass(frozen=True)
class Night:
    """What is kept of a night, or of any run."""

    started: str
    """In UTC, as ISO 8601."""
    ended: str
    commit: str
    """Empty where it is unknown."""
    word: str
    """``passes``, ``wrong``, ``machine``, ``slower``, ``incomplete``."""
    verdict: str
    subject: str
    setting: str
    """Checkpoint, device, dtype, attention."""
    machine: str
    """Which machine and which GPUs, in words."""
    parts: Sequence[Part] = ()
    cells: Cells = field(default_factory=dict)
    wrong: Sequence[Wrong] = ()
    flaky: Sequence[str] = ()
    """Tests that passed only when they were run again."""
    notes: Sequence[str] = ()
    """What the runs noticed, such as a known failure whose date is over."""
    times: Sequence[Line] = ()
    """As the lines of ``history.jsonl``."""
    format: Literal[1] = 1

    @property
    def day(self) -> str:
        """The day on which it began."""
        return self.started[:10]

    @property
    def short(self) -> str:
        """Its commit in a few digits."""
        name, _, changed = self.commit.partition("-")
        return (name[:HASH_CHARACTERS] + (f"-{changed}" if changed else "")) or "unknown"

    @property
    def at(self) -> str:
        """Its day and commit, in words."""
        return f"{self.day} (commit {self.short})"


NIGHTS = Format(Night, "it is left out; the others count")


def about(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Give the fields of :class:`Night` that are read off the results of its parts.

    Args:
        results: by the names of the parts, what their ``dsocr.json`` holds; nothing of a part without one.
    """
    runs = [result["run"] for result in results.values() if result.get("run")]
    first = runs[0] if runs else {}
    timed = [result for result in results.values() if result.get("perf")]
    setting = "/".join(str(first.get(name, "")) for name in ("checkpoint", "device"))
    return {
        "subject": first.get("subject", ""),
        "setting": "-".join([setting, *(str(first.get(name, "")) for name in ("dtype", "attention"))]) if first else "",
        "cells": cells_of(results.values()),
        "wrong": [one for name, result in results.items() for one in wrong_in(name, result)][:MOST_WRONG],
        "flaky": [test for result in results.values() for test in result.get("flaky", ())],
        "notes": list(dict.fromkeys(note for result in results.values() for note in result.get("notes", ()))),
        "times": [Line.of_run(one["perf"], one["ended"]) for one in timed],
    }


def of_run(result: Mapping[str, Any]) -> Night:
    """Make a night of one run, as ``dsocr compare`` writes it."""
    part: Part = {"name": "run", "word": result["ended_as"], "seconds": 0.0, "pages": len(result["cases"]), "why": ""}
    gpus = {one["device"] for one in result.get("spent", ())} - {"cpu"}
    return Night(
        started=result["started"],
        ended=result["ended"] or "",
        commit=result["commit"] or "",
        word={"infrastructure": "machine"}.get(result["ended_as"], result["ended_as"]),
        verdict=result["verdict"],
        machine=", ".join([result["environment"]["platform"], *sorted(gpus)]),
        parts=[part],
        **about({"run": result}),
    )


def add(folder: Path, night: Night) -> Path:
    """Add a night to a folder as a file of its own, and give that; what is there is never changed.

    Raises:
        DsocrError: where the disk does not take it.
    """
    stamp = "".join(c for c in night.started[:19] if c not in ":-")
    content = json.dumps(asdict(night), indent=1).encode() + b"\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / f".{stamp}-{os.getpid()}{SUFFIX}"
        write_whole(made, content)
        try:
            return _named(made, folder, f"{stamp}-{night.short}")
        finally:
            made.unlink(missing_ok=True)
    except OSError as error:
        raise DsocrError(f"{folder} takes no night ({error.strerror}); make room, or name another folder") from error


def read(folder: Path) -> tuple[list[Night], list[str]]:
    """Read every night below a folder, the oldest first; give what is wrong with which files as well."""
    nights, damaged = [], []
    for path in sorted(folder.rglob(f"*{SUFFIX}"), key=lambda path: (len(path.name), path.name)):
        if not path.name.startswith("."):
            try:
                nights.append(NIGHTS.read(path))
            except DsocrError as error:
                damaged.append(str(error))
    return sorted(nights, key=lambda night: night.started), damaged


def _named(made: Path, folder: Path, name: str) -> Path:
    """Give a file the first name that is free; a link is made only where there is none."""
    number = 1
    while True:
        path = folder / (f"{name}{SUFFIX}" if number == 1 else f"{name}-{number}{SUFFIX}")
        try:
            os.link(made, path)
        except FileExistsError:
            number += 1
        else:
            return path
