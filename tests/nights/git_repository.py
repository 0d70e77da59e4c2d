"""A small repository with a commit for each version of a file."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

AS = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")


def git(*arguments: str) -> str:
    done = subprocess.run(["git", *AS, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commits(name: str, versions: Sequence[tuple[str, str]]) -> list[str]:
    """Make a repository here; give a commit for each message and content of the file."""
    git("init", "-q")
    found = []
    for message, content in versions:
        Path(name).write_text(content, encoding="utf-8")
        git("add", name)
        git("commit", "-q", "--allow-empty", "-m", message)
        found.append(git("rev-parse", "HEAD"))
    return found
