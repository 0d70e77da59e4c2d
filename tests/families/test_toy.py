"""A model with one more stage and another tile size is added by one folder and one line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import pytest_dsocr

PACKAGE = Path(pytest_dsocr.__file__).parent
HERE = Path(__file__).parent
BESIDE = ("suites", "golden")
"""Folders that an installation has beside or in the package."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with one folder and one line more; all else is the package's own."""
    root = tmp_path_factory.mktemp("installed")
    own = root / PACKAGE.name
    own.mkdir()
    for path in PACKAGE.iterdir():
        if path.name not in ("families", "__pycache__"):
            (own / path.name).symlink_to(path)
    for name in BESIDE:
        (root / name).symlink_to(PACKAGE.parent / name)
    shutil.copytree(PACKAGE / "families", own / "families", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(HERE / "toy_ocr", own / "families" / "toy_ocr")
    names = own / "families" / "__init__.py"
    text = names.read_text(encoding="utf-8")
    line = 'NAMES = ("deepseek_ocr", "toy_ocr")'
    assert text.count('NAMES = ("deepseek_ocr",)') == 1
    names.write_text(text.replace('NAMES = ("deepseek_ocr",)', line), encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of 960 x 480 px with something on it."""
    path = tmp_path_factory.mktemp("page") / "wide.png"
    picture = Image.linear_gradient("L").resize((960, 480)).convert("RGB")
    picture.save(path)
    return path


@pytest.fixture(scope="module")
def used(installed: Path, page: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The toy's checkpoint, and what was seen of it."""
    folder = tmp_path_factory.mktemp("checkpoint") / "toy"
    out = _run(installed, HERE / "use_toy.py", folder, page)
    assert out.returncode == 0, out.stderr
    return folder, json.loads(out.stdout)


def test_it_is_read_timed_and_costed(used: tuple[Path, dict[str, Any]]) -> None:
    _, found = used
    assert (found["model"], found["grid"], found["crops"]) == ("ToyOCR", [[2, 1]], [2, 3, 320, 320])
    assert found["image_tokens"] == [4 * 4 + 1 + 2 * 5 * 5] * 2, "no newlines: the page, the separator, two crops"
    assert found["times"][3:6] == ["projector", "adapter", "vision_fusion"]
    assert list(found["seams"])[4:9] == [
        "projector.crops",
        "projector.page",
        "adapter.crops",
        "adapter.page",
        "vision_fusion",
    ]
    assert found["equal"]
    assert found["costs"]["adapter"] == 2 * (4 * 4 + 2 * 5 * 5) * 64 * 64
    assert found["parameters"][0] == found["parameters"][1]
    assert "adapter" in found["quantities"]
    assert found["case"] == ["wide-patchwork-markdown", "toy_ocr", True]


def test_it_is_compared_and_in_the_report(
    installed: Path, page: Path, used: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    checkpoint, _ = used
    out = _run(
        installed,
        *("-m", "pytest_dsocr", "compare", f"--out={tmp_path}", f"--checkpoint={checkpoint}", "--reference=session"),
        "--tests=suites/parity/test_case.py",
        "--subject=toy_subject:subject",
        *(f"--pages={page}", "--presets=patchwork", "--max-new-tokens=3"),
    )
    told = json.loads((tmp_path / "dsocr.json").read_text(encoding="utf-8"))
    compared = {one["what"]: one["verdict"] for case in told["cases"] for one in case["comparisons"]}
    assert [compared[f"{stage}.page"] for stage in ("projector", "adapter")] == ["MATCH", "WRONG"], out.stdout[-3000:]
    assert "adapter" in (tmp_path / "index.html").read_text(encoding="utf-8")


def _run(installed: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (installed, HERE))), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=installed, capture_output=True, text=True, check=False)
