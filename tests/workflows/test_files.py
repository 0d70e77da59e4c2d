"""Each workflow, read: what it may do, for how long, what it caches, and that its commands are ours."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from pytest_dsocr.cli.main import parser
from tests.checkout import CHECKOUT
from tests.workflows.jobs import FILES, FOLDER, Job, jobs_of, load

OF_GITHUB = [file for file in FILES if file.name.startswith("github")]
JOBS = [pytest.param(job, id=f"{file.stem}-{job.name}") for file in FILES for job in jobs_of(file).values()]
HOSTS_ALLOWED = {"https://github.com/pytest-dsocr/pytest-dsocr"}

every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
every_job = pytest.mark.parametrize("job", JOBS)


def test_every_file_is_described() -> None:
    told = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert len(FILES) == 3
    assert all(f"| `{file.name}` |" in told for file in FILES)


@every_file
def test_it_names_no_secret_and_no_other_host(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert "secrets" not in text
    assert {*re.findall(r"https?://[^\s'\"]+", text)} <= HOSTS_ALLOWED
    assert "index-url" not in text


@every_file
def test_it_caches_weights_and_environments(file: Path) -> None:
    content = load(file)
    assert "XDG_CACHE_HOME" in {**content.get("env", {}), **content.get("variables", {})}
    if "night" in jobs_of(file):
        [run, *_] = [step for step in jobs_of(file)["night"].steps if not step.sets_up]
        assert {run.env[name].split("/")[1] for name in ("HF_HOME", "XDG_CACHE_HOME", "VENDOR", "NIGHTS")} == {"srv"}
    else:
        assert file.read_text(encoding="utf-8").count("path: .cache") == len(jobs_of(file))


@every_job
def test_a_job_ends_in_time_and_keeps_its_results_whatever_happens(job: Job) -> None:
    of_gitlab = re.fullmatch(r"(\d+) (minutes|hours)", str(job.described.get("timeout")))
    minutes = job.described.get("timeout-minutes") or (
        int(of_gitlab[1]) * {"minutes": 1, "hours": 60}[of_gitlab[2]] if of_gitlab else 0
    )
    assert 0 < minutes <= 600
    if "artifacts" in job.described:
        assert job.described["artifacts"]["when"] == "always"
    else:
        [kept] = [step for step in job.described["steps"] if "upload-artifact" in step.get("uses", "")]
        assert kept["if"] == "always()"


@pytest.mark.parametrize("file", OF_GITHUB, ids=lambda file: file.stem)
def test_on_github_rights_are_few_and_runs_of_the_same_wait_or_end(file: Path) -> None:
    content = load(file)
    assert content["permissions"]["contents"] == "read"
    assert {*content["permissions"].items()} <= {("contents", "read"), ("issues", "write")}
    assert content["concurrency"]["group"].startswith("dsocr-")
    assert content["concurrency"]["cancel-in-progress"] is ("pull_request" in content[True])
    used = [step["uses"] for job in content["jobs"].values() for step in job["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", one) for one in used)


def test_on_gitlab_nights_wait_and_a_push_ends_the_run_before() -> None:
    jobs = jobs_of(FOLDER / "gitlab-ci.yml")
    assert jobs["night"].described["resource_group"] == "dsocr-nightly"
    assert all(jobs[name].described["interruptible"] for name in ("parity", "bench"))


@pytest.mark.parametrize("name", ["parity", "bench"])
def test_on_gitlab_the_commands_are_those_of_github(name: str) -> None:
    """Those of GitHub are run by another test."""
    [theirs] = [step.text for step in jobs_of(FOLDER / "github-pull-request.yml")[name].steps if not step.sets_up]
    [ours] = [step.text for step in jobs_of(FOLDER / "gitlab-ci.yml")[name].steps if not step.sets_up]
    for of_gitlab, of_github in (("$CI_MERGE_REQUEST_DIFF_BASE_SHA", "$BASE"), ("$CI_COMMIT_SHA", "$HEAD")):
        ours = ours.replace(of_gitlab, of_github)
    assert " ".join(ours.split()) in " ".join(theirs.replace("\\\n", " ").split())


@every_job
def test_its_shell_can_be_parsed_and_commands_of_ours_are_taken(job: Job) -> None:
    found = 0
    for step in job.steps:
        subprocess.run(["bash", "-n", "-c", step.text], check=True)
        for line in re.findall(r"^ *\.venv/bin/dsocr ((?:[^\n\\|]|\\\n)+)", step.text, re.MULTILINE):
            words = shlex.split(line.replace("\\\n", " ").replace("$BENCH", ""))
            parser().parse_args(words[: words.index("--")] if "--" in words else words)
            found += 1
    assert found


@every_job
def test_what_it_installs_has_the_extras_that_are_named(job: Job) -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = "\n".join(step.text for step in job.steps if step.sets_up)
    assert project["name"] in text
    named = {extra for extras in re.findall(r"pytest-dsocr\[([\w,]+)\]", text) for extra in extras.split(",")}
    assert named <= {*project["optional-dependencies"]}
