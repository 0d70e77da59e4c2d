"""Limits that a failure suggests: the smallest that will do, and none that would hide a mistake."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.compare.case import CaseReport, Explanation, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.describe.description import LEFT, Description
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.reference_result import Seam, SpanSeen
from pytest_dsocr.report import case_result
from pytest_dsocr.report.accepting import EXACT, acceptable
from pytest_dsocr.report.failure import TestFailure
from tests.compare.made import OUTPUT, seam_tensors
from tests.report.made import config, recorded, report

TITLE, IMAGES = OUTPUT.spans
BARE = "what makes boxes"


def moved(units: float) -> dict[str, Any]:
    return {"spans": (SpanSeen("title", (Box(1, 2, 3 + units, 4),)), IMAGES)}


def scaled(by: float) -> dict[str, Any]:
    seams = {name: Seam.of(tensor) for name, tensor in seam_tensors().items()}
    return {"seams": {**seams, "sam.page": Seam.of(seam_tensors()["sam.page"] * by)}}


def text(said: CaseReport, device: str, dtype: str = "float32") -> str:
    wrong = [one for one in said.comparisons if one.verdict is Verdict.WRONG]
    return TestFailure(wrong, said, config(device=device, dtype=dtype)).text(recorded(), "again")


def is_offered(said: CaseReport, device: str = "cuda", hint: str = BARE) -> bool:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(case_result, "hint", lambda *_, **__: hint)
        return "--dsocr-tolerances=" in text(said, device)


def at(level: Level, said: CaseReport) -> CaseReport:
    return replace(said, exchange=replace(said.exchange, answer=replace(said.exchange.answer, level=level)))


@pytest.mark.parametrize("level", [Level.TEXT, Level.STAGES])
@pytest.mark.parametrize(
    ("said", "dtype", "device", "is_rounding"),
    [
        (moved(1), "float32", "cpu", False),
        (moved(1), "float32", "cuda", True),
        (moved(1), "bfloat16", "cpu", True),
        (scaled(1 + 8e-4), "float32", "cpu", False),
        (scaled(1 + 8e-4), "float32", "cuda", False),
        (scaled(1.06), "bfloat16", "cuda", True),
    ],
)
def test_a_limit_is_suggested_only_for_what_rounding_can_do(
    level: Level, said: dict[str, Any], dtype: str, device: str, is_rounding: bool, tmp_path: Path
) -> None:
    failing = at(level, report(tmp_path, limits=tolerances(dtype), **said))
    assert not failing.passes
    assert is_offered(failing, device) is is_rounding


def test_no_limit_is_suggested_where_a_cause_is_known_or_likely(tmp_path: Path) -> None:
    """A wider limit would hide the mistake, whether it is proven, possible, described or only the likeliest one."""
    boxes = report(tmp_path, **moved(1))
    assert is_offered(boxes)

    def told(**changes: Any) -> CaseReport:
        return replace(boxes, exchange=replace(boxes.exchange, **changes))

    explained = Explanation("with rounded boxes", "boxes", ("files.rounded",), ("rounded boxes",))
    for one in (replace(explained, is_proven=True), explained, replace(explained, mistakes=(), advice="the units")):
        assert not is_offered(told(explanation=one))
    assert is_offered(told(explanation=replace(explained, mistakes=(), words=())))
    for text, share in (("each box is 10 lower", 1.0), ("1 of 3 boxes is right", 0.0)):
        described = told(described={"boxes": Description("boxes-moved", text, share)})
        assert is_offered(described, hint="" if share else BARE) is not bool(share)
    assert not is_offered(told(described={"boxes": Description("escaped-html", f"all is escaped; {LEFT}: one", 0.95)}))
    assert not is_offered(boxes, hint="how boxes are written, as all else of the text is right")


def test_a_text_alone_in_float32_on_a_cpu_is_exact_if_it_is_of_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case_result, "hint", lambda *_, **__: BARE)
    alone = at(Level.TEXT, report(tmp_path, text=OUTPUT.text + "?" * 3))
    said = " ".join(text(alone, "cpu").split())
    assert f"accept {EXACT}" in said
    assert "do the check first" not in said
    assert "--dsocr-tolerances" not in said


def test_at_l0_a_tolerance_is_not_the_first_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case_result, "hint", lambda *_, **__: BARE)
    said = report(tmp_path, **moved(1))
    whole, alone = (text(at(level, said), "cuda") for level in (Level.STAGES, Level.TEXT))
    first = "do the check first"
    assert (first in whole, first in alone) == (False, True)
    assert alone.index("\ncheck ") < alone.index("\naccept ")


@pytest.mark.parametrize(
    ("what", "said", "chosen"),
    [
        ("boxes", moved(1), {"coords": 0.002}),
        ("boxes", moved(49), {"coords": 0.05}),
        ("boxes", moved(51), {}),
        ("boxes", {"spans": (TITLE, SpanSeen("image", IMAGES.boxes[:1]))}, {"boxes": 1}),
        ("boxes", {"spans": ()}, {}),
        ("text", {"text": OUTPUT.text + "?" * 3}, {"text": 0.1}),
        ("text", {"text": ""}, {}),
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
