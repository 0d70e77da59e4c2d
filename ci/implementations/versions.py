"""Versions of a package: which there are, and between which two of them something changed."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import count, listed

LISTED = "Available versions: "


def versions_of(package: str, python: Path) -> list[str]:
    """Return a package's releases that pip can install, the oldest first; raise ``DsocrError`` where it finds none."""
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "index", "versions", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [line.removeprefix(LISTED) for line in done.stdout.splitlines() if line.startswith(LISTED)]
    if not found:
        raise DsocrError(f"pip finds no versions of {package}: {done.stderr.strip()[-200:]}")
    return found[0].split(", ")[::-1]


def between(versions: Sequence[str], ends: str) -> list[str]:
    """Return the versions from ``A`` to ``B`` of ``A..B``; raise ``DsocrError`` where that is no range."""
    first, _, last = ends.partition("..")
    if not {first, last} <= {*versions} or versions.index(first) >= versions.index(last):
        raise DsocrError(f"{ends} is no range of its versions; give two of {listed(versions)} as A..B")
    return [*versions[versions.index(first) : versions.index(last) + 1]]


def bisect(versions: Sequence[str], state_of: Callable[[str], str | None]) -> str:
    """Halve some versions until it is known which of them changed what they show, and say which.

    Args:
        versions: the oldest first, two or more.
        state_of: runs a version, and returns what it shows; None where it could not be run.

    Raises:
        DsocrError: where the first or the last could not be run.
    """
    states = {version: state_of(version) for version in (versions[0], versions[-1])}
    was, became = states.values()
    if was is None or became is None:
        raise DsocrError(f"{versions[0] if was is None else versions[-1]} could not be run; name another")
    if was == became:
        return f"{was} in {versions[0]} and in {versions[-1]}: nothing to look for between them"
    low, high = 0, len(versions) - 1
    while unknown := [k for k in range(low + 1, high) if versions[k] not in states]:
        k = unknown[len(unknown) // 2]
        state = states[versions[k]] = state_of(versions[k])
        if state == was:
            low = k
        elif state is not None:
            high, became = k, state
    skipped = listed(versions[low + 1 : high])
    without = f"; {skipped} could not be run" if skipped else ""
    return f"{was} up to {versions[low]}, {became} from {versions[high]} on{without} ({count(len(states), 'run')})"
