"""The plugin itself: what its import costs, and that the installed one is under test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_dsocr

HEAVY = ("torch", "numpy", "scipy", "PIL", "transformers", "tokenizers", "safetensors")


def test_import_of_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys, pytest_dsocr.plugin;"
        f"print(*[name for name in {HEAVY!r} if name in sys.modules], pytest_dsocr.plugin.__name__)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["pytest_dsocr.plugin"]


def test_the_header_names_the_plugin_and_its_place(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_nothing(): pass")
    result = pytester.runpytest_subprocess()
    result.stdout.fnmatch_lines([f"dsocr: pytest-dsocr {pytest_dsocr.__version__} from *pytest_dsocr"])


@pytest.mark.skipif("TOX_ENV_NAME" not in os.environ, reason="only tox promises to test the built wheel")
def test_the_wheel_is_what_is_tested() -> None:
    checkout = Path(__file__).parents[2]
    assert not Path(pytest_dsocr.__file__).is_relative_to(checkout / "pytest_dsocr")


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
