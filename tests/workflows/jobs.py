"""The jobs of a workflow, of GitHub's kind and of GitLab's, in one form."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.checkout import CHECKOUT

FOLDER = CHECKOUT / "ci" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
SETTING_UP = re.compile(r"Install|Fetch")
GITLABS_OWN = ("variables", "workflow", "stages", "default", "include")
EXPRESSION = re.compile(r"\$\{\{ *(.*?) *\}\}")


@dataclass(frozen=True)
class Step:
    """Commands that run in one shell."""

    name: str
    text: str
    env: Mapping[str, str]
    sets_up: bool
    """It installs or fetches, and a test does not run it."""


@dataclass(frozen=True)
class Job:
    """One job of a workflow."""

    name: str
    described: Mapping[str, Any]
    steps: tuple[Step, ...]


def load(file: Path) -> dict[Any, Any]:
    """Parse a workflow. GitHub's key ``on`` is a truth value to YAML 1.1."""
    content: dict[Any, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


def jobs_of(file: Path) -> dict[str, Job]:
    """The jobs by name."""
    content = load(file)
    if "jobs" in content:
        return {name: Job(name, job, tuple(_of_github(content, job))) for name, job in content["jobs"].items()}
    jobs = {name: _extended(content, job) for name, job in content.items() if name not in GITLABS_OWN}
    return {name: Job(name, job, tuple(_of_gitlab(content, job))) for name, job in jobs.items() if name[0] != "."}


def _of_github(workflow: Mapping[Any, Any], job: Mapping[str, Any]) -> Iterator[Step]:
    for step in job["steps"]:
        if "run" in step:
            env = {**workflow.get("env", {}), **job.get("env", {}), **step.get("env", {})}
            yield Step(step["name"], step["run"], env, bool(SETTING_UP.match(step["name"])))


def _of_gitlab(workflow: Mapping[Any, Any], job: Mapping[str, Any]) -> Iterator[Step]:
    env = {**workflow["variables"], **job.get("variables", {})}
    for name in ("before_script", "script", "after_script"):
        if name in job:
            yield Step(name, "\n".join(job[name]), env, name == "before_script")


def _extended(workflow: Mapping[Any, Any], job: Mapping[str, Any]) -> dict[str, Any]:
    return {**workflow.get(job.get("extends", ""), {}), **job}
