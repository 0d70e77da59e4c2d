"""``python -m ci.fast`` measures what it says, on a CPU as on a GPU; what the figures are is the machine's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ci import fast


def test_every_part_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "fast.json"
    small = [
        "--checkpoint=synthetic:tiny",
        "--device=cpu",
        "--dtype=float32",
        "--tokens=4",
        "--positions=60",
        "--rows=2",
    ]
    monkeypatch.setattr(fast, "PAGES_A_ROW", 1)
    monkeypatch.setattr(sys, "argv", ["ci.fast", *small, "--positions=60", "--rows=2", f"--out={out}"])
    fast.main()
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [*found["steps"]] == ["plain", *fast.ADDED, "a token on the wall"]
    [figures] = found["batches"].values()
    assert (figures["as alone"], figures["of"]) == (2, 2)
