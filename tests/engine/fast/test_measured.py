"""``python -m ci.fast`` measures what it says, on a CPU as on a GPU; what the figures are is the machine's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ci.fast import __main__ as command
from ci.fast import batches, stages, timing
from ci.fast.steps import ADDED

SMALL = ("--checkpoint=synthetic:tiny", "--device=cpu", "--dtype=float32", "--rounds=1", "--tokens=4")


def test_every_part_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "fast.json"
    typed = ["steps", "stages", "batches", *SMALL, "--positions", "60", "--rows", "2", f"--out={out}"]
    monkeypatch.setattr(timing, "WARM_UP_RUNS", 0)
    monkeypatch.setattr(stages, "PAGES", stages.PAGES[:1])
    monkeypatch.setattr(batches, "PAGES_A_ROW", 1)
    monkeypatch.setattr(sys, "argv", ["ci.fast", *typed])
    command.main()
    found = json.loads(out.read_text(encoding="utf-8"))
    assert [*found["steps"]] == ["plain", *ADDED, "a token on the wall"]
    assert {name.partition(": ")[0] for name in found["stages"]} == {"invoice_016"}
    assert all(figures["ratio"] > 0 for figures in found["stages"].values())
    [figures] = found["batches"].values()
    assert (figures["as alone"], figures["of"]) == (2, 2)
