"""A model with another encoder, other crops and another layout is added by one folder and one line."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

import pytest_dsocr

PACKAGE = Path(pytest_dsocr.__file__).parent
HERE = Path(__file__).parent
BESIDE = ("suites", "golden")
"""Folders that an installation has beside or in the package."""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Copy the package, with one more folder and one more line."""
    root = tmp_path / "installed"
    root.mkdir()
    own = root / PACKAGE.name
    own.mkdir()
    for path in PACKAGE.iterdir():
        if path.name not in ("models", "__pycache__"):
            (own / path.name).symlink_to(path)
    for name in BESIDE:
        (root / name).symlink_to(PACKAGE.parent / name)
    shutil.copytree(PACKAGE / "models", own / "models", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(HERE / "sketch_ocr", own / "models" / "sketch_ocr")
    names = own / "models" / "__init__.py"
    text = names.read_text(encoding="utf-8")
    line = 'NAMES = ("deepseek_ocr", "unlimited_ocr", "deepseek_ocr2")'
    assert text.count(line) == 1
    names.write_text(text.replace(line, f'{line[:-1]}, "sketch_ocr")'), encoding="utf-8")
    return root


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """Return a page of 960 x 480 px with something on it."""
    path = tmp_path / "wide.png"
    picture = Image.linear_gradient("L").resize((960, 480)).convert("RGB")
    picture.save(path)
    return path


@pytest.mark.dsocr_slow
def test_it_is_read_timed_costed_recorded_and_compared(installed: Path, page: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (installed, HERE))), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, (HERE / "use_sketch.py", tmp_path / "sketch", page, tmp_path / "out"))]
    ended = subprocess.run(command, env=environment, cwd=installed, capture_output=True, text=True, check=False)
    reported_to = tmp_path / "out" / "dsocr.json"
    assert reported_to.is_file(), ended.stdout[-3000:] + ended.stderr
    assert ended.returncode == pytest.ExitCode.TESTS_FAILED
    reported = json.loads(reported_to.read_text(encoding="utf-8"))
    compared = {one["what"]: one["verdict"] for case in reported["cases"] for one in case["comparisons"]}
    assert [compared[f"{stage}.page"] for stage in ("sam", "queries")] == ["MATCH", "WRONG"]
    [case] = reported["cases"]
    assert (case["proven"], "places that see earlier places alone" in case["explained"]) == (True, True)
    assert "queries" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
