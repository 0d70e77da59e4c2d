"""The checkout of this repository, even if the tests run on an installed package."""

import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
AS = ("-c", "user.name=a", "-c", "user.email=a@b.invalid", "-c", "init.defaultBranch=main")


def git(*arguments: str) -> str:
    """Run git in the current folder, and return its output."""
    return subprocess.run(["git", *AS, *arguments], check=True, capture_output=True, text=True).stdout.strip()
