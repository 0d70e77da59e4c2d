"""The commit of a folder, as every report and table tells it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_dsocr.foundation.process import commit_here


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a commit and a tag, in which a process is at work."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    (tmp_path / "file").write_text("one", encoding="utf-8")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"], ["tag", "-a", "v1", "-m", "one"]):
        git(*command)
    return tmp_path


def git(*arguments: str) -> str:
    who = ("-c", "user.name=A", "-c", "user.email=a@b")
    return subprocess.run(["git", *who, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def test_it_has_all_its_digits_whatever_it_is_tagged(folder: Path) -> None:
    assert commit_here() == git("rev-parse", "HEAD")
    (folder / "another").write_text("two", encoding="utf-8")
    assert commit_here() == git("rev-parse", "HEAD"), "what git does not know is no part of it"


def test_it_says_whether_files_differ(folder: Path) -> None:
    (folder / "file").write_text("two", encoding="utf-8")
    assert commit_here() == f"{git('rev-parse', 'HEAD')}-dirty"


def test_there_may_be_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(folder / "nothing"))
    assert commit_here() is None
    monkeypatch.setenv("PATH", str(folder))
    assert commit_here() is None
