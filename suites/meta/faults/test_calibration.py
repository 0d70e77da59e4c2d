"""What was measured: no correct variant is suspicious, and the picture is of it."""

from __future__ import annotations

import json

from pytest_dsocr.compare.tolerances import BY_DTYPE
from suites.meta.faults.calibration import CORRECT, MEASURED, PICTURE, SMALL
from suites.meta.faults.calibration_picture import picture

ROWS = json.loads(MEASURED.read_text(encoding="utf-8"))
USUAL = BY_DTYPE["float32"].usual
BELOW = {"SAM-W15"}
"""Mistakes that are smaller than rounding."""


def test_every_variant_was_measured() -> None:
    assert [row["name"] for row in ROWS] == [*CORRECT, *SMALL]


def test_no_correct_variant_is_suspicious_and_every_small_mistake_is_but_those_below_rounding() -> None:
    for row in ROWS:
        worst = max(row["errors"].values())
        assert (worst > USUAL) is not (row["correct"] or row["name"] in BELOW), row["name"]


def test_the_picture_is_of_what_was_measured() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(ROWS)
