"""Where a run first broke, and why: found once, and the same in every view of the result."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.report.cases import NO_BOXES, break_in_words, failed_behind
from pytest_dsocr.report.ci import errors, of_run, of_test
from pytest_dsocr.report.html import html
from pytest_dsocr.report.markdown import markdown
from pytest_dsocr.report.result import RunResult
from pytest_dsocr.report.terminal import Summary
from tests.report.made import DRIFT, MATCH, WRONG, case_payload, payload, run_payload
from tests.report.test_index import Page
from tests.report.test_result import result

WHY = "with the quick GELU, the session gives at clip.page what the subject gave"
LATER = Comparison("logits", Verdict.WRONG, "relative error 1.0e-01 (allowed 1e-04)", 0.1)


def case(name: str, **changes: Any) -> Any:
    broken = {"verdict": "WRONG", "passes": False, "first_wrong": "clip.page", "cause": "a guess"}
    return case_payload(name, MATCH, WRONG, LATER, **{"page": name, **broken, **changes})


def run(**told: Any) -> RunResult:
    """Three pages, two of which break at the same place; the second was explained."""
    of_another = Comparison("cache/layers", Verdict.WRONG, "2; the reference has 3")
    return result(
        ("failed", payload(LATER, case=case("a"), checked=True, run=run_payload())),
        ("failed", payload(WRONG, case=case("a"), checked=True)),
        ("failed", payload(LATER, case=case("b", **told), checked=True)),
        ("failed", payload(WRONG, case=case("b", **told), checked=True)),
        ("passed", payload(DRIFT, case=case_payload("c", DRIFT, page="c"))),
        ("failed", payload(of_another, case=case("b", **told))),
        ("failed", payload(LATER)),
    )


def test_a_break_is_all_cases_that_break_at_the_same_place_and_what_follows_of_it() -> None:
    [found] = run(explained=WHY, proven=True).broke
    assert (found["cases"], found["of"], found["proven"]) == (["a", "b"], 3, True)
    assert break_in_words(found) == f"clip.page in 2 of 3 pages: {WHY} (proven)"
    first, *others = (test[-2] for test in found["tests"])
    assert first == "3", "which compares what broke first, in the case that was explained"
    assert sorted(others) == ["0", "1", "2"], "not what is of no case, or of something beside it"
    assert failed_behind(found) == "3 more tests failed behind it"


def test_what_is_not_proven_is_to_be_checked() -> None:
    assert break_in_words(run().broke[0]) == "clip.page in 2 of 3 pages: check a guess"
    assert break_in_words(run(explained="by none", proven=False).broke[0]).endswith(": check a guess")
    assert run(page="a").broke[0]["unit"] == "case", "where a page is read in several presets"


def test_a_run_that_passes_broke_nowhere() -> None:
    assert result(("passed", payload(MATCH, case=case_payload("a")))).broke == []


def test_every_view_says_it() -> None:
    made = run(explained=WHY, proven=True)
    told, value = f"clip.page in 2 of 3 pages: {WHY} (proven)", made.to_json()
    assert value["broke"] == made.broke
    reporter: Any = type("Reporter", (), {"write_line": lambda self, line, **_: lines.append(line)})()
    lines: list[str] = []
    Summary(made).show_breaks(reporter)
    assert " ".join(" ".join(lines).split()).startswith(f"first broke {told}; 3 more tests failed behind it")
    assert f"**first broke** {told}" in markdown(value)
    assert ("dsocr_first_broke", told) in [*of_run(made)]
    assert ("dsocr_cause", WHY) in [*of_test(made.tests["test_case.py::test[3]"], "b", None)]
    page = html(value)
    assert page.index("<h1>") < page.index("clip.page in 2 of 3 pages") < page.index("</h1>")
    assert told in Page(page).text.replace("\n", " ").replace("&#39;", "'")


def test_what_failed_behind_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    made = run(explained=WHY, proven=True)
    value = made.to_json()
    first, *others = errors(value)
    assert "test[3]" in first
    assert f"first broke clip.page in 2 of 3 pages: {WHY} (proven); 3 more tests failed behind it" in first
    assert len(others) == 2
    assert [markdown(value).count(f"test\\[{k}\\]") for k in (0, 3, 5, 6)] == [0, 1, 1, 1]
    assert len(Summary(made).behind) == 3
    assert sum("WRONG   " in line.text for line in Summary(made).lines) == 1
    assert not Summary(made, verbose=True).behind


@pytest.mark.parametrize(("subject", "is_said"), [(0, True), (1, False), (None, False)])
def test_a_run_in_which_no_page_has_a_box_on_either_side_says_so(subject: int | None, is_said: bool) -> None:
    boxes = [{"reference": 0, "subject": 0}, {"reference": 0, "subject": subject}]
    cases = [case_payload(f"{k}", MATCH, boxes=one) for k, one in enumerate(boxes)]
    made = result(*(("passed", payload(MATCH, case=one)) for one in cases))
    assert (NO_BOXES in made.to_json()["notes"]) is is_said
    assert any(line.text.startswith("noticed         no page has a box") for line in Summary(made).lines) is is_said
