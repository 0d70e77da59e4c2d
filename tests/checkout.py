"""Where the repository is checked out, which is where these tests come from, whatever package they test."""

import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
AS = ("-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "init.defaultBranch=main")


def git(*arguments: str) -> str:
    """Call git on the repository of the current folder, and give what it says."""
    return subprocess.run(["git", *AS, *arguments], check=True, capture_output=True, text=True).stdout.strip()
