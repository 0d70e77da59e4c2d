"""What goes wrong in a night, planted: its exit status, its summary, and what GitHub shows beside the code."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_dsocr.nights.record import read
from pytest_dsocr.pages.page_list import shipped
from tests.checkout import CHECKOUT
from tests.nightly.conftest import nightly, write_config

[PAGE] = (page for page in shipped("dev-3") if page.stem == "figures_201")  # the one soonest read
TEXT = 'pytest = ["-k", "test_case and test_text"]'
WRONG, MACHINE, SLOWER = 1, 10, 11


@pytest.fixture
def on_github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    return summary


def lost_gpu(_: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    return ['device = "cuda"', 'parts = ["recorded"]', TEXT]


def missing_weights(_: Path, __: pytest.MonkeyPatch) -> list[str]:
    return ['checkpoint = "deepseek-ai/not-in-the-cache"', 'parts = ["recorded"]', TEXT]


def stale_recordings(home: Path, _: pytest.MonkeyPatch) -> list[str]:
    """Recordings of other files of the vendor's than those that are pinned beside them."""
    vendor = home / "golden" / "vendor"
    shutil.copytree(CHECKOUT / "golden/vendor/mini/cpu-float32-eager", vendor / "mini" / "cpu-float32-eager")
    anchors = json.loads((CHECKOUT / "golden/vendor/anchors.json").read_text(encoding="utf-8"))
    anchors["files"]["modeling_deepseekocr.py"]["sha256"] = "0" * 64
    (vendor / "anchors.json").write_text(json.dumps(anchors), encoding="utf-8")
    return ['golden = "golden"', 'parts = ["recorded"]', TEXT]


def wrong_stage(_: Path, __: pytest.MonkeyPatch) -> list[str]:
    subject = "tests.subjects.examples.bilinear:Bilinear"
    return [
        f'subject = "{subject}"',
        'parts = ["recorded"]',
        'pytest = ["-k", "test_case and (test_inputs or test_text)"]',
    ]


def needless_work(_: Path, __: pytest.MonkeyPatch) -> list[str]:
    """The page is encoded again in each step, which is counted."""
    subject = ['subject = "tests.perf.planted:vision_in_decode"', 'checkpoint = "synthetic:tiny"']
    allowed = 'may_miss = ["baseline", "timings", "recording", "snapshot"]'
    return [*subject, 'parts = ["perf"]', allowed, "max_new_tokens = 4", 'pytest = ["-k", "red_flag"]']


@pytest.mark.parametrize(
    ("plant", "status", "title", "told"),
    [
        (lost_gpu, MACHINE, "night%3A recorded", "--dsocr-device"),
        (missing_weights, MACHINE, "infrastructure%3A test_text", "deepseek-ai/not-in-the-cache"),
        (stale_recordings, MACHINE, "infrastructure%3A test_text", "which is not the pinned one"),
        (wrong_stage, WRONG, "wrong%3A test_inputs", "images_ori"),
        (needless_work, SLOWER, "slower%3A test_no_red_flag", "vision"),
    ],
)
def test_a_planted_fault_is_told(
    home: Path,
    on_github: Path,
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[Path, pytest.MonkeyPatch], list[str]],
    status: int,
    title: str,
    told: str,
) -> None:
    write_config([PAGE], *plant(home, monkeypatch))
    done = subprocess.run(nightly(), capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    [first, *_] = [line for line in done.stdout.splitlines() if line.startswith("::")]
    assert first.startswith("::error ")
    assert f"title={title}" in first
    assert told in first
    word = {WRONG: "wrong", MACHINE: "machine", SLOWER: "slower"}[status]
    summary = on_github.read_text(encoding="utf-8")
    assert summary.startswith(f"## DeepSeek-OCR, a night: {word}\n")
    assert summary.rstrip("\n") == Path("nightly-out/summary.md").read_text(encoding="utf-8").rstrip("\n")
    assert "### To run again" in summary
    [kept], damaged = read(Path("nightly-history"))
    assert (kept.word, damaged) == (word, [])
    assert word in Path("nightly-history/index.html").read_text(encoding="utf-8")
    if plant is wrong_stage:
        assert kept.cells["figures_201-gundam-markdown"]["tokenizer"] == "W"
        assert "tokenizer" in {one.stage for one in kept.wrong}


def test_a_full_disk_is_told_as_far_as_it_lets(home: Path, on_github: Path) -> None:
    """No file may be larger than 24 KiB: the night's own are smaller, and the result of a part is not."""
    write_config([PAGE], 'parts = ["recorded"]', 'pytest = ["-k", "test_case"]')
    command = f"ulimit -f 24; exec {shlex.join(nightly())}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == MACHINE, done.stdout + done.stderr
    assert "::error title=night%3A recorded::machine; " in done.stdout
    assert "cannot be written" in Path("nightly-out/recorded/output.log").read_text(encoding="utf-8")
    assert on_github.read_text(encoding="utf-8").startswith("## DeepSeek-OCR, a night: machine\n")


def test_a_history_that_takes_nothing_hides_no_wrong_model(home: Path) -> None:
    Path("mine.py").write_text("class Mine:\n    def read(self, page, **how):\n        return 'nonsense'\n")
    Path("kept").touch()
    write_config([PAGE], 'subject = "mine:Mine"', 'parts = ["recorded"]', TEXT, 'history = "kept"')
    done = subprocess.run(nightly(), capture_output=True, text=True, check=False)
    assert done.returncode == WRONG, done.stdout + done.stderr
    assert "this night is not among the others: " in done.stdout
