"""The command line as a user has it, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_the_command_line_reads_its_drawn_page(tmp_path: Path) -> None:
    done = _run("run", "--max-new-tokens", "8", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[2].endswith("2 x 2 crops and the whole page, 702 prompt tokens, 693 of them image")
    assert "output      8 tokens, ended by length" in lines
    assert {"result.mmd", "info.json", "result_with_boxes.jpg"} <= {path.name for path in tmp_path.iterdir()}


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    done = _run("run", str(tmp_path / "absent.png"), "--out", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr.startswith("dsocr: ")
    assert "absent.png" in done.stderr
    assert "Traceback" not in done.stderr


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest_dsocr", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)
