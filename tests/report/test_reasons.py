"""Why the cases of a cause break: what proves it, describes it, or is left of all candidates."""

from dataclasses import replace
from typing import Any

from msgspec import structs, to_builtins

from pytest_dsocr.describe.description import LEFT, Description
from pytest_dsocr.explain.proof import UNTOLD
from pytest_dsocr.records.page_measures import PageMeasures
from pytest_dsocr.report.case_result import FurtherResult
from pytest_dsocr.report.cause import where_broke
from pytest_dsocr.report.causes import causes_of
from pytest_dsocr.report.outcomes import judged_by_tests
from pytest_dsocr.report.separating import separation
from tests.report.made import DRIFT, RIGHT, WRONG, case_payload, failed, payload, shown


def why(*changes: dict[str, Any]) -> str:
    """Return the reason of the one break of cases of text, and whether it is proven."""
    made = {"verdict": "WRONG", "passes": False, "first_wrong": "text", "cause": "a, or b"}
    payloads = [case_payload(name, **made | one) for name, one in zip("abc", changes, strict=False)]
    [found] = causes_of([judged_by_tests(one, []) for one in payloads], [])
    return f"{found.why}{' (proven)' * found.proven}"


def test_what_several_cases_have_in_common_is_why_they_break() -> None:
    assert [why({}, {"cause": "b, or c"}), why({}, {"cause": "c"})] == ["check b", "check a, or b (a)"]
    assert why({"explained": "by none"}, {"explained": "with x", "proven": True}) == "with x (proven)"


def test_what_is_named_and_not_proven_is_why_they_break_perhaps() -> None:
    none, named = {"explained": "by none of 9"}, {"explained": "with x, or y", "mistakes": ["x", "y"]}
    assert why(none, named) == "perhaps with x, or y"
    assert why(none, {"explained": f"{UNTOLD}: 1 of 9 gave it", "mistakes": ["x"]}) == "check a, or b"
    assert why({"explained": "by chance", "readings": {"after": [], "failing": [2]}}) == "perhaps by chance"
    assert why(none) == "check a, or b"


def left(names: str, pages: int) -> dict[str, Any]:
    """Return a case whose text these mistakes explain, and those of the pages before it that were tried."""
    return {"explained": f"with {names}", "proven": bool(names), "mistakes": [*names], "tried_on": pages}


def test_candidates_that_are_not_proven_are_named_unless_another_page_refutes_them() -> None:
    unproven = [left("xy", 1) | {"proven": False}, left("x", 2) | {"proven": False}]
    assert why(*unproven) == "perhaps with x"
    assert why({"explained": "in part: with x", "mistakes": ["x"]}) == "perhaps in part: with x"
    assert why(*unproven, left("z", 1)) == "check a, or b", "another page refutes it"
    refuted = {"cause": "what makes read", "explained": "not by any", "tried_on": 2}
    assert why(left("x", 1) | {"proven": False, "cause": "x"}, refuted) == "check what makes read"


def test_right_pages_that_tested_a_cause_are_not_counted_as_wrong() -> None:
    made = {"verdict": "WRONG", "passes": False, "first_wrong": "text", "cause": "a"}
    pages = [case_payload(name, **made | one) for name, one in (("a", left("x", 1)), ("b", left("x", 2) | RIGHT))]
    [found] = causes_of([judged_by_tests(one, []) for one in pages], [])
    assert (found.cases, where_broke(found)) == (["a"], "text in 1 of 2 cases")


def test_a_description_is_the_reason_or_stands_next_to_it() -> None:
    inserted = Description("inserted", "one token 0 (BOS) inserted at 1,024", 1.0)
    case = {"verdict": "WRONG", "passes": False, "first_wrong": "input_ids", "described": inserted, "cause": None}

    def said(**more: Any) -> str:
        [found] = causes_of([judged_by_tests(case_payload("a", **case | more), [])], [])
        return found.said

    assert said() == inserted.text
    assert said(explained="by none of 9") == inserted.text
    assert said(explained="with x", mistakes=["x"]) == f"perhaps with x; measured: {inserted.text}"
    assert said(explained="with x", proven=True, mistakes=["x"]) == "with x (proven)", "a proof says all"
    assert said(cause="a, or b") == f"{inserted.text}; check a, or b"
    assert said(cause="what makes input_ids; 9 not tried") == f"{inserted.text}; 9 not tried"
    assert said(cause="what makes input_ids") == inserted.text, "what says nothing is left out"


def test_a_described_change_that_leaves_a_part_stays_beside_the_cause_of_that_part() -> None:
    described = Description("escaped-html", f"every & is escaped; {LEFT}: '27'", 0.95)
    rest = FurtherResult("text", "with that undone, with x", False, [])
    case = {"verdict": "WRONG", "passes": False, "first_wrong": "text", "explained": "by none of 9"}
    case |= {"described": described, "cause": "for what is left, every stage", "further": [rest]}
    [found] = causes_of([judged_by_tests(case_payload("a", **case), [])], [])
    assert found.how_many == "1 to 2 causes"
    first, second = found.numbered
    assert first.startswith(f"1. text: {described.text}")
    assert second == "2. text: with that undone, with x"


def test_several_causes_are_numbered_and_one_that_is_found_replaces_a_first_without_a_name() -> None:
    bias, norm = (FurtherResult(what, f"with {what}", True, [what]) for what in ("clip.page/0", "clip.page"))
    case = {"verdict": "WRONG", "passes": False, "first_wrong": "clip.page", "cause": "a", "explained": "by none of 9"}

    def listed(*further: FurtherResult, **more: Any) -> list[str]:
        [found] = causes_of([judged_by_tests(case_payload("a", **case | more, further=[*further]), [])], [])
        return [one.split(":")[0] for one in found.numbered]

    assert listed() == listed(proven=True, mistakes=["x"]) == []
    assert listed(bias) == ["1. clip.page", "2. clip.page/0"]
    assert listed(bias, norm) == ["1. clip.page/0", "2. clip.page"]
    assert listed(bias, norm, norm, proven=True, explained="with x", mistakes=["x"]) == [
        "1. clip.page",
        "2. clip.page/0",
        "3. clip.page",
    ]


def test_two_places_of_a_stage_may_have_one_cause_until_both_are_proven() -> None:
    page = FurtherResult("clip.page/0", "with y", True, ["y"])
    wrong = {"verdict": "WRONG", "passes": False, "explained": "with x"}
    case = {**wrong, "first_wrong": "clip.crops/0", "further": [page]}

    def how_many(**more: Any) -> str:
        [found] = causes_of([judged_by_tests(case_payload("a", **case | more), [])], [])
        return found.said.partition(":")[0]

    assert how_many() == "1 to 2 causes"
    assert how_many(proven=True, mistakes=["x"]) == how_many(first_wrong="sam.crops/0") == "2 causes"


def test_of_texts_what_is_left_of_most_pages_is_why_they_break() -> None:
    assert why(left("xy", 1), left("x", 2)) == "with x (proven)"
    assert why(left("x", 1), left("yz", 2)) == "with yz (proven)", "the search went on at the second page"
    assert why(left("xy", 1), left("", 2)) == why(left("x", 1), left("", 2) | RIGHT) == "check a, or b"


def test_of_texts_that_several_workers_explain_each_must_leave_what_is_named() -> None:
    assert why(left("xy", 1), left("x", 2), left("xz", 1)) == "with x (proven)"
    assert (
        why(left("xy", 1), left("x", 2), left("z", 1)) == why(left("x", 2), left("", 1) | RIGHT, {}) == "check a, or b"
    )


def test_a_size_that_separates_wrong_pages_from_right_ones_is_reported_unless_chance_may() -> None:
    """The odd pages count, too: with a few pages alone, some size separates them by chance."""
    wrong = {"verdict": "WRONG", "passes": False, "first_wrong": "text", "cause": "every stage"}
    pages = {"a": (2000, 8, 1102), "b": (1140, 4, 702), "c": (532, 0, 282)}
    sizes = {name: PageMeasures(width, 900, crops, tokens, 90) for name, (width, crops, tokens) in pages.items()}
    cases = [
        case_payload(name, **(wrong if name == "a" else {}), page=name, measures=to_builtins(size))
        for name, size in sizes.items()
    ]

    def said(right: int) -> str:
        odd = [failed("t.py::odd[wide]", cause=shown("", "a"), page=PageMeasures(2100, 900, 9, 1208, 6))]
        odd += [replace(one, outcome="passed", nodeid=f"t.py::odd[{k}]") for k in range(right) for one in odd[:1]]
        for k, one in enumerate(odd[1:]):
            one.sent = payload(DRIFT, page=PageMeasures(1400, 2000, 4, 698 - k, 6))
        odd[0].sent = structs.replace(odd[0].sent, comparisons=payload(WRONG).comparisons)
        [cause] = causes_of(cases, [])
        cause.tests.append(odd[0].nodeid)
        return separation(cause, cases, odd)

    assert said(16).startswith("the 2 wrong of 20 pages have at least 1,102 tokens in the prompt")
    assert ["8 crops" in said(16), "height" in said(16)] == [True, False]
    assert said(8) == "", "of 12 pages, one of 66 pairs is separated by chance"


def test_cases_are_counted_and_described_under_their_own_first_tensor() -> None:
    """A page without crops breaks at its whole view, as do the crops of the other pages."""
    broke = {"verdict": "WRONG", "passes": False, "cause": "a"}
    page, crops = (replace(WRONG, what=f"sam.{view}/0") for view in ("page", "crops"))
    cut = case_payload("cut", page, crops, **broke, first_wrong=crops.what)
    seen = Description("error", "4096 of 4096 positions differ", 0.0)
    whole = case_payload("whole", page, **broke, first_wrong=page.what, described=seen)
    [found] = causes_of([judged_by_tests(one, []) for one in (whole, cut)], [])
    assert where_broke(found) == "sam.crops/0 in 1 of 2 cases, sam.page/0 in 1"
    assert found.described == f"sam.page/0 of whole: {seen.text}"
