"""What no schema holds of the workflows to copy: their shell, their commands of ours, and what they may do."""

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


def load(file: Path) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


def scripts(file: Path) -> list[str]:
    """The shell of each step of GitHub's, or of each part of a job of GitLab's."""
    content = load(file)
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


@pytest.mark.parametrize("file", GITHUB, ids=lambda file: file.stem)
def test_on_github_rights_are_few_and_results_are_kept_in_time(file: Path) -> None:
    content = load(file)
    assert "secrets." not in file.read_text(encoding="utf-8")
    assert {*content["permissions"].items()} <= {("contents", "read"), ("issues", "write")}
    assert content["concurrency"]["cancel-in-progress"] is ("pull_request" in content[True])  # YAML 1.1 reads `on` so
    for job in content["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 600
        [kept] = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
        assert kept["if"] == "always()"


def test_on_gitlab_the_commands_are_those_of_github() -> None:
    names = {"$CI_MERGE_REQUEST_DIFF_BASE_SHA": "$BASE", "$CI_COMMIT_SHA": "$HEAD", "$CI_PIPELINE_ID": "$GITHUB_RUN_ID"}
    ours = "\n".join(commands(GITLAB))
    for of_gitlab, of_github in names.items():
        ours = ours.replace(of_gitlab, of_github)
    assert {*ours.split("\n")} <= {command for file in GITHUB for command in commands(file)}
