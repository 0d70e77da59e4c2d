"""The commit that is checked out in the working directory."""

from __future__ import annotations

import subprocess

GIT = ("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
TIME_LIMIT_S = 10


def commit_here() -> str | None:
    """Give it in 40 digits, ``-dirty`` behind it where files differ from it; None where there is none."""
    try:
        found = subprocess.run(GIT, capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
