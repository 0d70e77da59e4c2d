"""Which tolerance a failing test offers: the smallest under which it passes, or none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.compare.case import judge
from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.observation.observation import Seam, SpanSeen
from pytest_dsocr.report.failure import acceptable
from tests.compare.made import OUTPUT, seam_tensors
from tests.report.made import LIMITS, report

TITLE, IMAGES = OUTPUT.spans
BOX = IMAGES.boxes[0]


def moved(units: float) -> dict[str, Any]:
    return {"spans": (SpanSeen("title", (Box(1, 2, 3 + units, 4),)), IMAGES)}


def scaled(by: float) -> dict[str, Any]:
    seams = {name: Seam.of(tensor) for name, tensor in seam_tensors().items()}
    return {"seams": {**seams, "sam.page": Seam.of(seam_tensors()["sam.page"] * by)}}


@pytest.mark.parametrize(
    ("what", "said", "chosen"),
    [
        ("boxes", moved(0), {}),
        ("boxes", moved(1), {"coords": 0.002}),
        ("boxes", moved(9), {"coords": 0.01}),
        ("boxes", moved(49), {"coords": 0.05}),
        ("boxes", moved(51), {}),
        ("boxes", {"spans": (TITLE, SpanSeen("image", IMAGES.boxes[:1]))}, {"boxes": 1}),
        ("boxes", {"spans": ()}, {}),
        ("text", {"text": OUTPUT.text + "?" * 3}, {"text": 0.1}),
        ("text", {"text": ""}, {}),
        ("sam.page", scaled(1 + 1.2e-4), {"seam": pytest.approx(1.5e-4)}),
        ("sam.page", scaled(1 + 8e-4), {"seam": pytest.approx(1e-3)}),
        ("sam.page", scaled(1.5), {}),
    ],
)
def test_the_smallest_that_will_do_or_none(
    what: str, said: dict[str, Any], chosen: dict[str, float], tmp_path: Path
) -> None:
    failing = report(tmp_path, **said)
    found = acceptable(failing, [what])
    assert found == chosen
    if found:
        again = judge(failing.exchange, failing.limits.but(found))
        assert all(one.passes for one in again.comparisons if one.what == what)


def test_what_is_allowed_already_is_not_offered_again(tmp_path: Path) -> None:
    wide: Tolerances = replace(LIMITS, coords=0.02)
    spans = (SpanSeen("title", (Box(1, 2, 3 + 15, 4),)),)
    assert acceptable(report(tmp_path, spans=spans, limits=wide), ["boxes"]) == {"boxes": 2}


def test_what_is_allowed_already_is_not_narrowed_to_what_may_be_offered(tmp_path: Path) -> None:
    wide, spans = replace(LIMITS, coords=0.1), (SpanSeen("title", (Box(1, 2, 83, 4),)), SpanSeen("image", (BOX,)))
    assert acceptable(report(tmp_path, spans=spans, limits=wide), ["boxes"]) == {"boxes": 1}


def test_only_what_the_test_holds_has_to_pass(tmp_path: Path) -> None:
    assert acceptable(report(tmp_path, **moved(1), text=""), ["boxes"]) == {"coords": 0.002}


def test_tensors_that_are_no_numbers_are_never_offered_a_tolerance(tmp_path: Path) -> None:
    broken = Seam.of(torch.full_like(seam_tensors()["sam.page"], torch.nan))
    assert acceptable(report(tmp_path, seams={"sam.page": broken}), ["sam.page"]) == {}
