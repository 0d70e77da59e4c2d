"""The command that a report ends with: what to type next."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest_dsocr
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.foundation.words import in_shell

if TYPE_CHECKING:
    from pytest_dsocr.report.payload import RunPayload
    from pytest_dsocr.report.result import RunResult

SUITES = "pytest_dsocr.suites"
SAFE_PATH = "-P"
"""Keeps a checkout in the working directory from being imported in place of the installation, as `pytest` does."""
OWN, VENDOR = "package.module:factory", "path/to/vendor"
SHIPPED_SUBJECT = "session"
OF_RECORD = ("checkpoint", "device", "dtype", "attention")
"""The fields of a provenance that are options of ``dsocr vendor record``."""
FIRST = "parity"
"""The suite that runs first: it compares whole pages, so that it gives the first verdict."""


def suites(left_out: Container[str]) -> list[str]:
    """Return what pytest is to run: the suites of the installation, or those of the checkout, but for some."""
    is_installed = find_spec(SUITES) is not None
    package = Path(pytest_dsocr.__path__[0])
    folder = package / "suites" if is_installed else package.parent / "suites"
    found = [init.parent for init in folder.glob("*/__init__.py") if init.parent.name not in left_out]
    found.sort(key=lambda suite: (suite.name != FIRST, suite.name))
    return ["--pyargs", *(f"{SUITES}.{one.name}" for one in found)] if is_installed else [*map(str, found)]


def rerun(nodeid: str, options: Sequence[str] = (), root: Path | None = None) -> str:
    """Return the shell command that runs a test again, with the run's options; its id is relative to ``root``."""
    if "--pyargs" in options:  # there, an id begins inside the package
        return in_shell(["pytest", SUITES, *options, "-k", nodeid.rpartition("::")[2]])
    file, *names = nodeid.split("::")
    return in_shell(["pytest", "::".join((os.path.relpath(root / file) if root else file, *names)), *options])


def record(run: RunPayload | None) -> str:
    """Return the command that records what the reference lacks."""
    words = ["dsocr", "vendor", "record", VENDOR]
    if run is None:
        return in_shell([*words, "PAGES"])
    made = [f"--{name}={run['provenance'][name]}" for name in OF_RECORD]
    return in_shell([*words, *run["pages"], "--presets", *run["presets"], "--prompts", *run["prompts"], *made])


def following(result: RunResult, options: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield what a user may want to type next, a reason and a command; nothing where nothing is left to do."""
    typed = result.identity.command
    by_session = result.run is not None and result.run["reference"] == "session"  # which was there for what is missing
    missing = any(one["what"] == "recording" and not (by_session and one["allowed"]) for one in result.missing)
    if missing and not result.counts.get(Verdict.WRONG):
        yield "to record what is missing, with the vendor's files", record(result.run)
        if result.run and result.run["reference"] == "recorded" and result.run["subject"] != SHIPPED_SUBJECT:
            yield (
                "or, without them, to let the session stand in",
                f"{typed} --dsocr-reference=session",
            )
    elif result.failing:
        first = next(test for one in result.causes for test in one["tests"])
        yield "to run the first failing test again", rerun(first, options, result.root)
    elif result.run and result.run["subject"] == SHIPPED_SUBJECT:
        yield "to test an implementation of your own", f"{typed} --dsocr-subject={OWN}"
    elif result.run and result.run["reference"] in ("recorded", "session"):
        yield "to compare with the vendor's code, live", f"{typed} --dsocr-reference={VENDOR}"
