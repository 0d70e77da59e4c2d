"""What no schema holds of the workflows to copy: their shell, and their commands of ours."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_dsocr.cli.main import parser
from tests.checkout import CHECKOUT

FOLDER = CHECKOUT / "ci" / "workflows"
GITHUB, GITLAB = sorted(FOLDER.glob("github-*.yml")), FOLDER / "gitlab-ci.yml"
NO_JOBS = ("variables", "workflow")


def scripts(file: Path) -> list[str]:
    """The shell of each step of GitHub's, or of each part of a job of GitLab's."""
    content: dict[Any, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    if "jobs" in content:
        return [step["run"] for job in content["jobs"].values() for step in job["steps"] if "run" in step]
    jobs = [job for name, job in content.items() if name not in NO_JOBS]
    return ["\n".join(job[part]) for job in jobs for part in ("before_script", "script", "after_script") if part in job]


def commands(file: Path) -> list[str]:
    """What is called of ours, each on a line of its own."""
    shell = "\n".join(scripts(file)).replace("\\\n", " ")
    return [" ".join(found.split()) for found in re.findall(r"^ *\.venv/bin/dsocr ([^\n|]+)", shell, re.MULTILINE)]


@pytest.mark.parametrize("file", [*GITHUB, GITLAB], ids=lambda file: file.stem)
def test_the_shell_can_be_parsed_and_our_commands_are_taken(file: Path) -> None:
    for script in scripts(file):
        subprocess.run(["bash", "-n", "-c", script], check=True)
    assert commands(file)
    for command in commands(file):
        words = shlex.split(command.replace("$BENCH", ""))
        parser().parse_args(words[: words.index("--")] if "--" in words else words)
