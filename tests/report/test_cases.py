"""Why cases break: what explains one is the cause of all only where it explains the others as well."""

from __future__ import annotations

from typing import Any

from pytest_dsocr.report.cases import breaks_of, judged_by_tests
from tests.report.made import case_payload


def why(*changes: dict[str, Any]) -> str:
    """The reason of the one break of cases of text, and whether it is proven."""
    made = {"verdict": "WRONG", "passes": False, "first_wrong": "text", "cause": "a, or b"}
    payloads = [case_payload(name, **made | one) for name, one in zip("abc", changes, strict=False)]
    [found] = breaks_of([judged_by_tests(one, []) for one in payloads], [])
    return f"{found['why']}{' (proven)' * found['proven']}"


def test_what_several_cases_have_in_common_is_why_they_break() -> None:
    assert [why({}, {"cause": "b, or c"}), why({}, {"cause": "c"})] == ["b", "a, or b (a)"]
    assert why({"explained": "by none"}, {"explained": "with x", "proven": True}) == "with x (proven)"


def left(names: str, pages: int) -> dict[str, Any]:
    """A case whose text these mistakes explain, and those of the pages before it that were tried."""
    return {"explained": f"with {names}", "proven": bool(names), "mistakes": [*names], "tried_on": pages}


RIGHT = {"passes": True, "first_wrong": None}


def test_of_texts_what_is_left_of_most_pages_is_why_they_break() -> None:
    assert why(left("xy", 1), left("x", 2)) == "with x (proven)"
    assert why(left("x", 1), left("yz", 2)) == "with yz (proven)", "the search went on at the second page"
    assert why(left("xy", 1), left("", 2)) == why(left("x", 1), left("", 2) | RIGHT) == "a, or b"


def test_of_texts_that_several_workers_explain_each_must_leave_what_is_named() -> None:
    assert why(left("xy", 1), left("x", 2), left("xz", 1)) == "with x (proven)"
    assert why(left("xy", 1), left("x", 2), left("z", 1)) == why(left("x", 2), left("", 1) | RIGHT, {}) == "a, or b"


def test_of_texts_it_is_said_that_pages_without_crops_are_right() -> None:
    cut, whole = ({"shapes": {"reference": {"images_crop": f"{dtype} [4, 3]"}}} for dtype in ("bfloat16", "float32"))
    right = {"passes": True, "first_wrong": None}
    runs = ((cut, whole | right), (cut, cut | right), (cut, whole, whole | right), (cut,))
    assert [why(*run).endswith("the pages without crops are right") for run in runs] == [True, False, False, False]
