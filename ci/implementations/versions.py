"""Versions of a package: which there are, and between which two of them something changed."""

import subprocess
import sys
from collections.abc import Callable, Sequence

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import count, listed

LISTED = "Available versions: "


def versions_of(package: str) -> list[str]:
    """Return a package's releases that pip can install, the oldest first; raise ``DsocrError`` where it finds none."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(LISTED):
            return line.removeprefix(LISTED).split(", ")[::-1]
    raise DsocrError(f"pip finds no versions of {package}: {done.stderr.strip()[-200:]}")


def between(versions: Sequence[str], ends: str) -> Sequence[str]:
    """Return the versions from ``A`` to ``B`` of ``A..B``; raise ``DsocrError`` where that is no range."""
    first, _, last = ends.partition("..")
    if not {first, last} <= {*versions} or versions.index(first) >= versions.index(last):
        raise DsocrError(f"{ends} is no range of its versions; give two of {listed(versions)} as A..B")
    return versions[versions.index(first) : versions.index(last) + 1]


def bisect(versions: Sequence[str], state_of: Callable[[str], str | None]) -> str:
    """Halve versions, the oldest first, and say where what they show changed; ``state_of`` gives None of one not run.

    Raises:
        DsocrError: where the first or the last could not be run.
    """
    low, high = 0, len(versions) - 1
    states = {k: state_of(versions[k]) for k in (low, high)}
    if unseen := [versions[k] for k, state in states.items() if state is None]:
        raise DsocrError(f"{unseen[0]} could not be run; name another")
    if states[low] == states[high]:
        return f"{states[low]} in {versions[low]} and in {versions[high]}: nothing to look for between them"
    while unknown := [k for k in range(low + 1, high) if k not in states]:
        k = unknown[len(unknown) // 2]
        states[k] = state_of(versions[k])
        if states[k] is not None:
            low, high = (k, high) if states[k] == states[0] else (low, k)
    skipped = listed(versions[low + 1 : high])
    without = f"; {skipped} could not be run" if skipped else ""
    runs = count(len(states), "run")
    return f"{states[low]} up to {versions[low]}, {states[high]} from {versions[high]} on{without} ({runs})"
