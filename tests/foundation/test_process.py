"""This process: what its collector spares, the commit of its folder, and the bar of a command."""

from __future__ import annotations

import os
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.foundation.process import commit_here, progress_bar

CODE = """
import gc, weakref
from pytest_dsocr.foundation.process import spare_what_is_imported

class Cycle:
    def __init__(self):
        self.itself = self

seen = len(gc.get_objects())
spare_what_is_imported()
left = len(gc.get_objects())
later = weakref.ref(Cycle())
spare_what_is_imported()
gc.collect()
print(left < seen / 10, later() is None)
"""


def test_what_is_there_is_spared_once_and_what_comes_later_is_collected() -> None:
    said = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "True"]


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


SHOWN: dict[str, Any] = {"total": 2, "desc": "pages", "mininterval": 0}


def test_a_terminal_shows_the_bar_and_it_goes_when_the_work_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = os.openpty()
    termios.tcsetwinsize(follower, (24, 80))
    with os.fdopen(follower, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        with progress_bar(**SHOWN) as bar:
            bar.update()
            bar.update()
        terminal.write("end\n")
        terminal.flush()
        with os.fdopen(leader, encoding="utf-8", newline="\n") as screen:
            *redrawn, last = screen.readline().split("\r")[:-1]
    assert any("pages: 100%" in line for line in redrawn)
    assert last == "end"
