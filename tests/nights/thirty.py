"""Thirty nights made of a few real runs: a repository whose subject is broken, mended, flips, and is broken again.

    python -m tests.nights.thirty FOLDER

Each version of the subject is run once, at its own commit; the nights at the same version have that run's result, at
commits that change nothing else. A minute or two, without a GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pytest_dsocr.nights import record
from pytest_dsocr.nights.record import Night
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.report.file import read_result
from tests.checkout import CHECKOUT

PAGES = ("figures_201", "figures_009", "form_015", "invoice_016")
RIGHT, BILINEAR = "staged:Staged", "bilinear:Bilinear"
SEPARATE, SWAPPED = "separate_prefill:SeparatePrefill", "swapped_halves:SwappedHalves"
NO_WEIGHTS = "no weights"
PLAN = (
    *(RIGHT,) * 8,
    *(BILINEAR,) * 3,
    *(RIGHT,) * 6,
    NO_WEIGHTS,
    *(RIGHT,) * 3,
    SEPARATE,
    *(RIGHT,) * 3,
    *(SWAPPED,) * 5,
)
FLIPS = 21
"""The night whose commit is that of the nights around it, for it is the machine that is wrong."""
FIRST = datetime(2026, 10, 24, 1, 17, tzinfo=UTC)
GIT = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org")


def make(folder: Path, plan: Sequence[str] = PLAN, pages: Sequence[str] = PAGES) -> Iterator[Path]:
    """Yield the file of each night of a plan, added to ``folder / nights``."""
    repository = folder / "repository"
    repository.mkdir(parents=True)
    subprocess.run([*GIT, "init", "-q"], cwd=repository, check=True)
    runs: dict[str, dict[str, Any]] = {}
    commit, last = "", ""
    for k, version in enumerate(plan):
        held = k in (FLIPS, FLIPS + 1)
        if not held and version != NO_WEIGHTS and (version != last or k % 3 == 0):
            commit, last = _commit(repository, version, k), version
        if version not in runs and version != NO_WEIGHTS:
            runs[version] = _run(repository, version, folder / f"run-{len(runs)}", pages)
        yield record.add(folder / "nights", _night(runs.get(version), runs[plan[0]], commit, k))


def _commit(repository: Path, version: str, k: int) -> str:
    (repository / "my_ocr.py").write_text(_code(version), encoding="utf-8")
    (repository / "notes.txt").write_text(f"{k}\n", encoding="utf-8")
    for command in (("add", "."), ("commit", "-qm", f"Work of day {k}")):
        subprocess.run([*GIT, *command], cwd=repository, check=True)
    named = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=repository, check=True, capture_output=True, text=True)
    return named.stdout.strip()


def _code(version: str) -> str:
    module, _, name = version.partition(":")
    return f"from tests.subjects.examples.{module} import {name} as MyOcr\n\n__all__ = ['MyOcr']\n"


def _run(repository: Path, version: str, out: Path, pages: Sequence[str]) -> dict[str, Any]:
    (repository / "my_ocr.py").write_text(_code(version), encoding="utf-8")
    files = [path for path in shipped("all") if path.stem in pages]
    words = ["compare", *map(str, files), "--subject=my_ocr:MyOcr", f"--out={out.absolute()}"]
    allowed = ["--may-miss=gpu", "--may-miss=vendor", "--may-miss=snapshot"]
    command = [sys.executable, "-P", "-m", "pytest_dsocr", *words, *allowed, "--", "-q", "-k", "test_case"]
    path = {"PYTHONPATH": f"{repository.absolute()}:{CHECKOUT}"}
    subprocess.run(command, cwd=repository, check=False, capture_output=True, env={**os.environ, **path})
    return read_result(out)


def _night(result: dict[str, Any] | None, right: dict[str, Any], commit: str, k: int) -> Night:
    started = (FIRST + timedelta(days=k)).isoformat()
    night = replace(record.of_run(result or right), started=started, ended=started, commit=commit)
    if result is None:
        lost = {"word": "machine", "verdict": "machine: recorded machine", "cells": {}, "wrong": []}
        return replace(night, **lost)  # type: ignore[arg-type]
    return night


if __name__ == "__main__":
    for made in make(Path(sys.argv[1])):
        sys.stdout.write(f"{made}\n")
