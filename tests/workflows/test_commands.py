"""The commands of the workflows, run here as they stand, in a repository of a subject and in a small form."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.plugin.options import OPTIONS
from tests.nightly.conftest import COMMIT
from tests.reference.small_folder import write_small_folder
from tests.workflows.jobs import EXPRESSION, FOLDER, Job, jobs_of

[PAGE] = (page for page in shipped("dev-3") if page.stem == "figures_201")  # the one soonest read
SUBJECT = """
from pytest_dsocr.engine.session import Session


class MyOcr:
    def __init__(self, setup):
        self.engine = Session.from_checkpoint(setup.checkpoint, device=setup.device, dtype=setup.dtype)

    def read(self, page, *, prompt, preset, max_new_tokens):
        return self.engine.run(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens).text
"""
NIGHT = f"""
subject = "my_ocr:MyOcr"
level = "L0"
pages = ["{PAGE}"]
parts = ["doctor", "recorded"]
may_miss = ["snapshot"]
pytest = ["-k", "test_text or test_boxes"]
"""
GH = '#!/bin/sh\nprintf "%s\\n" "$@" > gh.txt\n'
PASSES, WRONG = 0, 1


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a job has when it is installed: two commits of a subject, and an environment."""
    for option in OPTIONS:
        monkeypatch.delenv(option.env, raising=False)
    folder = tmp_path / "home"
    (folder / ".venv" / "bin").mkdir(parents=True)
    monkeypatch.chdir(folder)
    _script(".venv/bin/python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    _script(".venv/bin/dsocr", f'#!/bin/sh\nexec "{sys.executable}" -P -m pytest_dsocr "$@"\n')
    _script(".venv/bin/gh", GH)
    (folder / ".gitignore").write_text("*\n!*.py\n!.gitignore\n")
    (folder / "nightly.toml").write_text(NIGHT)
    subprocess.run(["git", "init", "-q"], check=True)
    for text in (SUBJECT, f"{SUBJECT}# and a second version\n"):
        (folder / "my_ocr.py").write_text(text)
        subprocess.run(["git", "add", "."], check=True)
        subprocess.run(COMMIT, check=True)
    write_small_folder(tmp_path / "vendor")
    return folder


def _script(path: str, text: str) -> None:
    Path(path).write_text(text)
    Path(path).chmod(0o755)


def commit(name: str) -> str:
    return subprocess.run(["git", "rev-parse", name], capture_output=True, text=True, check=True).stdout.strip()


def run(job: Job, home: Path) -> list[tuple[str, int, str]]:
    """Run the steps of a job that set nothing up; of each its name, its exit status, and what it said."""
    base, head, srv = commit("HEAD~1"), commit("HEAD"), home.parent
    told = {
        "github.event.pull_request.base.sha": base,
        "github.event.pull_request.head.sha": head,
        "github.token": "none",
        "github.workspace": str(home),
    }
    of_ci = {
        "GITHUB_RUN_ID": "7",
        "GITHUB_STEP_SUMMARY": "summary.md",
        "CI_PIPELINE_ID": "7",
        "CI_COMMIT_SHA": head,
        "CI_MERGE_REQUEST_DIFF_BASE_SHA": base,
    }
    small = {
        "PAGES": str(PAGE),
        "BENCH": "--checkpoint=synthetic:tiny --preset=tiny --max-new-tokens=2 --rounds=6",
        **{name: str(srv / name.lower()) for name in ("XDG_CACHE_HOME", "HF_HOME", "NIGHTS", "VENDOR")},
    }
    found = []
    for step in job.steps:
        if not step.sets_up:
            env = {name: EXPRESSION.sub(lambda named: told[named[1]], value) for name, value in step.env.items()}
            path = f"{home / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
            env = {**os.environ, **of_ci, **env, **{name: small[name] for name in small if name in env}, "PATH": path}
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", step.text], env=env, capture_output=True, text=True, check=False
            )
            found.append((step.name, done.returncode, done.stdout + done.stderr))
    return found


@pytest.mark.dsocr_slow
def test_a_pull_request_is_held_against_the_recordings(home: Path) -> None:
    [(_, status, said)] = run(jobs_of(FOLDER / "github-pull-request.yml")["parity"], home)
    assert status == PASSES, said
    result = json.loads(Path("dsocr-out/dsocr.json").read_text(encoding="utf-8"))
    assert result["passes"]
    assert (result["run"]["subject"], result["run"]["level"]) == ("my_ocr:MyOcr", "L0")
    assert Path("dsocr-out/junit.xml").is_file()


@pytest.mark.dsocr_slow
def test_base_and_head_are_measured_in_turn(home: Path) -> None:
    """Where so few rounds cannot tell, that is a warning."""
    [(_, status, said)] = run(jobs_of(FOLDER / "github-pull-request.yml")["bench"], home)
    assert status == PASSES, said
    assert ("::warning title=dsocr bench::" in said) == ("could not tell" in said)
    sides = [line.split()[3].strip(",") for line in said.splitlines() if line.startswith(("A   ", "B   "))]
    assert sides == [commit("HEAD~1")[:12], commit("HEAD")[:12]]
    assert Path("bench.json").is_file()
    assert Path("history.jsonl").is_file()


@pytest.mark.dsocr_slow
def test_a_night_on_github_is_kept_and_an_issue_opened(home: Path) -> None:
    night, watch = run(jobs_of(FOLDER / "github-nightly.yml")["night"], home)
    assert night[1] == PASSES, night
    assert (home.parent / "nights" / "7" / "index.html").is_file()
    assert watch[1] == WRONG, "the small folder is not the vendor's"
    issue = Path("vendor.md").read_text(encoding="utf-8")
    assert issue.startswith("## The vendor's files have changed\n")
    summary = Path("summary.md").read_text(encoding="utf-8")
    assert summary.startswith("## DeepSeek-OCR, a night: passes\n")
    assert (home.parent / "nights" / "history" / "index.html").is_file()
    assert summary.endswith(issue)
    assert Path("gh.txt").read_text().splitlines()[:2] == ["issue", "create"]


@pytest.mark.dsocr_slow
def test_a_night_on_gitlab_fails_by_the_changed_files_and_keeps_both(home: Path) -> None:
    script, after = run(jobs_of(FOLDER / "gitlab-ci.yml")["night"], home)
    assert script[1] == WRONG, script
    assert "passes; see " in script[2]
    assert Path("vendor.md").is_file()
    assert after[1] == PASSES
    assert Path("night/index.html").is_file()
