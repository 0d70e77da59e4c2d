"""This process: the commit of its folder."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pytest_dsocr.foundation.process import commit_here


def test_a_commit_has_all_its_digits_and_says_whether_files_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> str:
        who = ("-c", "user.name=A", "-c", "user.email=a@b")
        return subprocess.run(["git", *who, *arguments], check=True, capture_output=True, text=True).stdout.strip()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit_here() is None
    (tmp_path / "file").write_text("one", encoding="utf-8")
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "one"], ["tag", "-a", "v1", "-m", "one"]):
        git(*command)
    (tmp_path / "another").write_text("two", encoding="utf-8")
    assert commit_here() == git("rev-parse", "HEAD"), "what git does not know is no part of it"
    (tmp_path / "file").write_text("two", encoding="utf-8")
    assert commit_here() == f"{git('rev-parse', 'HEAD')}-dirty"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_here() is None
