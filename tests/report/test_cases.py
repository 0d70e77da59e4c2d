"""Why cases break: what explains one is the cause of all only where it explains the others as well."""

from __future__ import annotations

from typing import Any

from pytest_dsocr.explain.hints import REFUTED
from pytest_dsocr.report.cases import breaks_of, judged_by_tests
from tests.report.made import case_payload


def why(*changes: dict[str, Any]) -> str:
    """The reason of the one break of cases of text, and whether it is proven."""
    made = {"verdict": "WRONG", "passes": False, "first_wrong": "text", "cause": "a, or b"}
    payloads = [case_payload(name, **made | one) for name, one in zip("abc", changes, strict=False)]
    [found] = breaks_of([judged_by_tests(one, []) for one in payloads], [])
    return f"{found['why']}{' (proven)' * found['proven']}"


def test_what_several_cases_have_in_common_is_why_they_break() -> None:
    x, both = ({"explained": f"with {words}", "proven": True} for words in ("x", "x, or y"))
    assert [why({}, {"cause": "b, or c"}), why({}, {"cause": "c"})] == ["b", "a, or b (a)"]
    assert why(both, x) == "with x (proven)"
    assert why(both, {"explained": f"{REFUTED} the mistake"}) == "a, or b"


def test_of_texts_it_is_said_that_pages_without_crops_are_right() -> None:
    cut, whole = ({"shapes": {"reference": {"images_crop": f"{dtype} [4, 3]"}}} for dtype in ("bfloat16", "float32"))
    right = {"passes": True, "first_wrong": None}
    runs = ((cut, whole | right), (cut, cut | right), (cut, whole, whole | right), (cut,))
    assert [why(*run).endswith("the pages without crops are right") for run in runs] == [True, False, False, False]
