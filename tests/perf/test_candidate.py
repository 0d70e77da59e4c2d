"""From what a user names to what a side runs."""

from __future__ import annotations

import sys
import venv
import zipfile
from pathlib import Path

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.perf.candidate import opened
from tests.perf.test_bench import QUICK

CODE = "from tests.perf.sleeping import {} as Engine\n"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, warm: None) -> None:
    monkeypatch.chdir(tmp_path)


def wheel(version: str, name: str) -> str:
    """A wheel with the module ``my_engine``."""
    info = f"my_engine-{version}.dist-info"
    path = Path(f"my_engine-{version}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("my_engine.py", CODE.format(name))
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: my-engine\nVersion: {version}\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "".join(f"{one},,\n" for one in (*file.namelist(), f"{info}/RECORD")))
    return str(path)


def test_two_wheels_are_compared_whatever_lies_in_the_folder(capsys: pytest.CaptureFixture[str]) -> None:
    Path("my_engine.py").write_text("raise ImportError('not to be imported')\n", encoding="utf-8")
    both = (wheel("1.0", "Sleeping"), wheel("2.0", "Slower"))
    assert main(["bench", *both, "--subject=my_engine:Engine", "--slower=page=0.1", *QUICK]) == 1
    assert "verdict         B is slower: page" in capsys.readouterr().out


def test_a_file_that_is_no_wheel_is_refused() -> None:
    Path("no-1.0-py3-none-any.whl").write_bytes(b"nothing")
    with (
        pytest.raises(DsocrError, match=r"no-1.0-py3-none-any.whl cannot be installed: "),
        opened("no-1.0-py3-none-any.whl"),
    ):
        pass


def test_an_environment_is_run_by_its_own_python(capsys: pytest.CaptureFixture[str]) -> None:
    python = Path("there/bin/python")
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nSTARTED_THERE=1 exec {sys.executable} "$@"\n', encoding="utf-8")
    python.chmod(0o700)
    Path("my_engine.py").write_text(
        "import os\nfrom tests.perf.sleeping import Other, Sleeping\n\n\n"
        "def engine():\n    return Other() if 'STARTED_THERE' in os.environ else Sleeping()\n",
        encoding="utf-8",
    )
    assert main(["bench", ".", "env:there", "--subject=my_engine:engine", "--rounds=2", *QUICK]) == 2
    assert "the two do not read the same" in capsys.readouterr().out


def test_an_environment_without_the_package_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    venv.create("bare", symlinks=True)
    assert main(["bench", ".", "env:bare", "--subject=tests.perf.sleeping:Sleeping", *QUICK]) == 3
    assert "finds no pytest_dsocr; install pytest-dsocr there" in capsys.readouterr().err


def test_a_candidate_of_another_commit_needs_no_probe_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The commit's own ``pytest_dsocr`` loads the subject, and this one's probe measures it."""
    from tests.checkout import CHECKOUT

    package = tmp_path / "other" / "pytest_dsocr"
    package.mkdir(parents=True)
    for room in (CHECKOUT / "pytest_dsocr").iterdir():
        if room.name != "perf":
            (package / room.name).symlink_to(room)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(package.parent)
        assert main(["bench", ".", ".", "--subject=tests.perf.sleeping:Sleeping", "--rounds=2", *QUICK]) == 2
    assert "AMBIGUOUS" in capsys.readouterr().out
