"""A night in a folder of its own, as a command."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.checkout import git


@pytest.fixture
def home(unset: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one commit."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "code.txt").write_text("as it was\n")
    for command in (("init", "-q"), ("add", "."), ("commit", "-qm", "it")):
        git(*command)
    return folder


def nightly(*arguments: str) -> list[str]:
    return [sys.executable, "-P", "-m", "pytest_dsocr", "nightly", "nightly.toml", *arguments]


def run_night(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(nightly(*arguments), capture_output=True, text=True, check=False)


def write_config(pages: Sequence[Path], *lines: str) -> None:
    """Write a configuration of fast tests into the working directory."""
    named = ", ".join(f'"{page}"' for page in pages)
    Path("nightly.toml").write_text("\n".join([f"pages = [{named}]", *lines, ""]), encoding="utf-8")
