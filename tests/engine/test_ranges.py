"""The ranges that a profiler sees: NVTX itself opens them, and a library in a profiler's place prints them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("ranges.c")
SCRIPT = """
from PIL import Image
from pytest_dsocr.engine.session import Session
Session.from_checkpoint("synthetic:tiny").run(Image.new("RGB", (64, 64), "white"), preset="tiny", max_new_tokens=2)
"""
COMPILER = shutil.which("cc") or shutil.which("gcc")


@pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")
def test_each_stage_is_a_range_of_nvtx(tmp_path: Path) -> None:
    pytest.importorskip("nvtx")
    library = tmp_path / "ranges.so"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    environment = {**os.environ, "NVTX_INJECTION64_PATH": str(library)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True)
    seen = [line for line in done.stderr.splitlines() if line.startswith("dsocr")]
    opened = [line.removeprefix("dsocr+") for line in seen if line != "dsocr-"]
    assert list(dict.fromkeys(opened)) == [
        *("tokenizer", "sam", "clip", "projector", "vision_fusion", "prefill", "decode", "postprocess")
    ]
    assert len(opened) == seen.count("dsocr-")
