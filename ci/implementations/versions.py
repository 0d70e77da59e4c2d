"""Versions of a package: which there are, and between which two of them something changed."""

import subprocess
import sys
from collections.abc import Callable, Sequence

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.words import count, listed

LISTED = "Available versions: "


def versions_of(package: str) -> list[str]:
    """Return a package's releases that pip can install, the oldest first; raise ``DsocrError`` where it finds none."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", package]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith(LISTED):
            return line.removeprefix(LISTED).split(", ")[::-1]
    raise DsocrError(f"pip finds no versions of {package}: {done.stderr.strip()[-200:]}")


def bisect(versions: Sequence[str], ends: str, state_of: Callable[[str], str | None]) -> str:
    """Halve the versions ``A..B``, the oldest first, and say where what they show changed; one not run shows None.

    Raises:
        DsocrError: where ``ends`` are no range, or the first or the last could not be run.
    """
    low, high = (versions.index(end) if end in versions else -1 for end in ends.partition("..")[::2])
    if not 0 <= low < high:
        raise DsocrError(f"{ends} is no range of its versions; give two of {listed(versions)} as A..B")
    first = low
    states = {k: state_of(versions[k]) for k in (low, high)}
    if unseen := [versions[k] for k, state in states.items() if state is None]:
        raise DsocrError(f"{unseen[0]} could not be run; name another")
    if states[low] == states[high]:
        return f"{states[low]} in {versions[low]} and in {versions[high]}: nothing to look for between them"
    while unknown := [k for k in range(low + 1, high) if k not in states]:
        k = unknown[len(unknown) // 2]
        states[k] = state_of(versions[k])
        if states[k] is not None:
            low, high = (k, high) if states[k] == states[first] else (low, k)
    skipped = listed(versions[low + 1 : high])
    without = f"; {skipped} could not be run" if skipped else ""
    runs = count(len(states), "run")
    return f"{states[low]} up to {versions[low]}, {states[high]} from {versions[high]} on{without} ({runs})"
