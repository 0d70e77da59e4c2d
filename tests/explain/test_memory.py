"""One more session is only loaded where there is memory for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pytest_dsocr.explain import runtime
from pytest_dsocr.explain.runtime import check_memory, free_bytes
from pytest_dsocr.foundation.errors import DsocrError


def test_what_does_not_fit_is_refused_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 33554432 kB\nMemAvailable: 8388608 kB\n", encoding="utf-8")
    monkeypatch.setattr(runtime, "MEMORY", meminfo)
    assert free_bytes(torch.device("cpu")) == 8 * 2**30
    check_memory("mini", "cpu", "float32")
    with pytest.raises(DsocrError, match=r"needs 18\.\d GiB, and 8\.0 are free on cpu.*--dsocr-explain=0"):
        check_memory("synthetic:full", "cpu", "float32")
    meminfo.unlink()
    assert free_bytes(torch.device("cpu")) is None
    check_memory("synthetic:full", "cpu", "float32")  # a system that does not say is trusted
