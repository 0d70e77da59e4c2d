"""Nights of real runs: what was planted is found, with the commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_dsocr.cli.main import main
from pytest_dsocr.nights.record import read
from pytest_dsocr.nights.spells import spells
from tests.nights.thirty import PLAN, RIGHT, SWAPPED, make


def test_a_planted_stage_is_told_with_its_first_night(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert len([*make(tmp_path, (RIGHT, RIGHT, SWAPPED, SWAPPED), ("figures_009",))]) == 4
    nights, damaged = read(tmp_path / "nights")
    assert not damaged
    [one] = spells(nights)
    assert (one.first, one.good, one.mended) == (nights[2], nights[1], None)
    assert one.stages[0] == "vision_fusion"
    assert one.can_be_bisected
    page = tmp_path / "page.html"
    assert main(["history", str(tmp_path / "nights"), f"--html={page}"]) == 0
    command = f"dsocr bisect {nights[1].commit[:12]} {nights[2].commit[:12]} --stage=vision_fusion"
    assert command in capsys.readouterr().out
    assert "vision_fusion: relative error" in page.read_text(encoding="utf-8")


def test_the_plan_is_of_thirty_nights() -> None:
    assert len(PLAN) == 30
