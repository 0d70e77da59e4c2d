"""The limit of usual errors lies between the measured correct variants and the small mistakes."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest

from pytest_dsocr.compare.case import judge
from pytest_dsocr.compare.tolerances import BY_DTYPE, CORRECT, tolerances
from tests.faults.outcome import of_catalogue
from tests.faults.trial import cases, hold, loaded, planted

MEASURED = json.loads(Path(__file__).with_name("calibration.json").read_text(encoding="utf-8"))
"""Largest relative error at each seam of each variant, by device and dtype."""
USUAL = BY_DTYPE["float32"].usual
MARGIN = 2**0.5
"""Sum of two independent kernel errors, which a CPU that was not measured may have."""
BELOW = {"SAM-W15"}
"""Mistakes that are smaller than rounding."""


def test_no_correct_variant_is_suspicious_and_every_small_mistake_is_but_those_below_rounding() -> None:
    for row in MEASURED["cpu-float32"]:
        worst = max(row["errors"].values())
        assert (worst > USUAL) is not (row["correct"] or row["name"] in BELOW), row["name"]
        assert not row["correct"] or worst * MARGIN < USUAL, row["name"]


@pytest.mark.parametrize("name", ["SAM-13", "CLP-02", None])
def test_a_wrong_epsilon_is_wrong_where_a_run_asks_for_what_is_usual(name: str | None) -> None:
    [case] = [case for case in cases() if case.page.stem == "figures_201"]
    fault = of_catalogue((name,))[name] if name else None
    with planted(fault) if fault else nullcontext(loaded()) as subject:
        held = hold(subject, case).exchange
    found = judge(held, tolerances("float32").but({"seam": USUAL})).divergence
    assert (found and found.first.stage) == (fault.stage if fault else None)


@pytest.mark.parametrize(
    ("key", "measured"), [(("cpu", "float32"), "cpu-float32"), (("cuda", "bfloat16"), "nvidia-h200-bfloat16")]
)
def test_the_range_of_correct_variants_on_the_page_is_what_was_measured(key: tuple[str, str], measured: str) -> None:
    rows = [row["errors"] for name in MEASURED if name.startswith(measured) for row in MEASURED[name] if row["correct"]]
    for stage, largest in CORRECT[key].items():
        reached = max(row[stage] for row in rows)
        assert reached <= largest <= reached * 1.1
