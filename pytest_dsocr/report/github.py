"""What GitHub's CI shows of a run: annotations of failed tests, and the job's summary."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.words import fit
from pytest_dsocr.report.markdown import markdown

MOST = 10
"""GitHub shows no more errors of a step."""
COLUMNS = 1000
IS_GITHUB, SUMMARY, WORKSPACE = "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"


def errors(result: Mapping[str, Any]) -> Iterator[str]:
    """Yield a command of GitHub's for each of the first failed tests, or for a refused run; elsewhere nothing."""
    if not is_here():
        return
    if "tests" not in result:
        yield f"::error title=DeepSeek-OCR%3A {result['ended_as']}::{_data(result['verdict'])}"
        return
    for test in [one for one in result["tests"] if one["why"]][:MOST]:
        title = f"{test['ended_as']}: {test['nodeid'].rpartition('::')[2]}"
        yield f"::error {_place(test)}title={_property(title)}::{_data(test['why'])}"


def annotation(kind: str, title: str, text: str) -> Iterator[str]:
    """Yield a command of GitHub's that is of no test; elsewhere nothing.

    Args:
        kind: ``error`` or ``warning``.
        title: what it is about.
        text: what it says.
    """
    if is_here():
        yield f"::{kind} title={_property(title)}::{_data(text)}"


def is_here() -> bool:
    """Say whether this is a job of GitHub's."""
    return os.environ.get(IS_GITHUB) == "true"


def append_summary(result: Mapping[str, Any]) -> str | None:
    """Append the run's summary to that of the job, where GitHub names one; give why not, where it cannot be."""
    return append(markdown(result)) if os.environ.get(SUMMARY, "").strip() else None


def append(text: str) -> str | None:
    """Append Markdown to the job's summary, where GitHub names one; give why not, where it cannot be."""
    named = os.environ.get(SUMMARY, "").strip()
    if not named:
        return None
    try:
        with Path(named).open("a", encoding="utf-8", errors="replace") as file:
            file.write(text + "\n")
    except OSError as error:
        return f"the summary was not appended to {named} ({error.strerror})"
    return None


def _place(test: Mapping[str, Any]) -> str:
    """Give the test's file and line, where it lies in what was checked out."""
    workspace = Path(os.environ.get(WORKSPACE, "").strip() or Path.cwd()).resolve()
    path = Path(test["file"]).resolve() if test["file"] else None
    if path is None or not path.is_relative_to(workspace):
        return ""
    return f"file={_property(path.relative_to(workspace).as_posix())},line={test['line']},"


def _data(text: str) -> str:
    """Escape what stands behind the last colons, as GitHub's own toolkit does."""
    return fit(text, COLUMNS).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """Escape what stands before them."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
