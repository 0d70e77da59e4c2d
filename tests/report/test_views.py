"""The views of a result: whole runs as the terminal, Markdown, JUnit and the page show them, each a snapshot."""

import math
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from msgspec import structs
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.base.words import COLUMNS
from pytest_dsocr.compare.text import compare_text
from pytest_dsocr.compare.verdict import Comparison, Reason, Symptom, Verdict, not_compared
from pytest_dsocr.cost.roofline import Bound, Roof, devices
from pytest_dsocr.describe.description import Description
from pytest_dsocr.report.case_result import FurtherResult
from pytest_dsocr.report.ci import errors, of_run, of_test
from pytest_dsocr.report.document import Environment, RunJson
from pytest_dsocr.report.result import RunResult
from pytest_dsocr.report.terminal import BAD, Summary
from pytest_dsocr.report.views import html, markdown
from pytest_dsocr.report.worker_report import ProcessTimes
from pytest_dsocr.timing.run import PerfRun
from pytest_dsocr.timing.statistics import Judgement, TimingVerdict
from tests.report.made import DRIFT, FAULT, GUESS, MATCH, SLOW, WRONG, Ended, case_payload, payload, result, run_payload
from tests.report.markup import Page
from tests.timing.made import measured

RUN = run_payload()
OWN, LIVE = run_payload(subject="mine:Model", level="L0"), run_payload(subject="mine:Model", reference="live")
BY_ENGINE = run_payload(reference="engine", where="golden/a")
LATER = Comparison("logits", Verdict.WRONG, "relative error 1.0e-01 (allowed 1e-04)", 0.1)
OF_ANOTHER = Comparison("cache/layers", Verdict.WRONG, "2; the reference has 3")
CROPS, VIEW = (replace(WRONG, what=f"sam.{view}/0") for view in ("crops", "page"))
UNGIVEN = not_compared("sam.page", Reason.NOT_GIVEN)
OF_EACH_LEVEL = (
    *("artefacts", "read", "boxes", "input_ids", "dtypes", "sam.page", "logits", "policy/eos_id"),
    *("result.mmd", "sam.page/0", "sam.page/1"),
)
LESS = [not_compared(name, Reason.NOT_OFFERED) for name in OF_EACH_LEVEL]
LOST = payload(left_out="recording", reason="golden/vendor does not hold a; add it with: dsocr vendor record", run=RUN)
SUSPICIOUS = replace(DRIFT, what="clip.page/3", error=3e-6, signs=frozenset((Symptom.SUSPICIOUS,)))
BROKEN = {"verdict": "WRONG", "passes": False, "first_wrong": "clip.page", "cause": "a guess", "right_before": 9}
WHY = {"explained": "with the quick GELU, the engine reproduces the subject's clip.page", "proven": True}

NO_BIAS = FurtherResult("sam.page/0", "with a bias left out, the engine reproduces sam.page/0", True, ["sam.no-bias"])
SHIFTED = FurtherResult("fusion", "by none of 9", False, [], Description("shifted", "tokens are shifted by one", 1.0))


def drifting(k: int) -> Ended:
    counted = {"vision_tokens": 64 * k, "text_tokens": 100} if k else None
    case = case_payload(f"d{k}", worst_error=k * 1e-7, counts={"MATCH": 1, "DRIFT": 1}, compression=counted)
    return "passed", payload(MATCH, DRIFT, run=RUN, case=case)


def broken(name: str, *comparisons: Comparison, **changes: Any) -> Ended:
    """Return a failed test of a page that breaks at CLIP."""
    case = case_payload(name, MATCH, WRONG, LATER, **{"page": name, **BROKEN, **changes})
    return "failed", payload(*comparisons, case=case, cause=GUESS, run=RUN)


def breaking(**changes: Any) -> list[Ended]:
    """Three pages, two of which break at the same place; the second was explained."""
    return [
        *(broken("a", LATER), broken("a", WRONG), broken("b", LATER, **changes), broken("b", WRONG, **changes)),
        ("passed", payload(DRIFT, case=case_payload("c", DRIFT, page="c"))),
        (
            "failed",
            payload(OF_ANOTHER, case=case_payload("b", MATCH, WRONG, LATER, **{"page": "b", **BROKEN, **changes})),
        ),
        ("failed", payload(LATER)),
    ]


SPELT = compare_text("a <b>word</b>", "a <b>ward</b>", 0.0)
SPELT_WRONG = case_payload("s", SPELT, verdict="WRONG", passes=False, first_wrong="text", cause="the prompt")
OUTSIDE = case_payload("o", MATCH, WRONG, passes=False, verdict="WRONG")
RUNS: dict[str, list[Ended]] = {
    "passes": [drifting(k) for k in range(5)],
    "passes with a subject of one's own": [("passed", payload(MATCH, run=OWN))],
    "passes live": [("passed", payload(MATCH, run=LIVE, case=case_payload(first_token_ms=120.0)))],
    "rests on the engine": [("passed", payload(MATCH, run=BY_ENGINE, case=case_payload(by_engine=True)))],
    "breaks once, proven": breaking(**WHY),
    "breaks once, not proven": breaking(explained="by none", proven=False),
    "several causes": breaking(**WHY, further=[NO_BIAS, SHIFTED]),
    "text alone": [("failed", payload(SPELT, case=SPELT_WRONG, run=OWN)), ("skipped", payload(left_out="L2"))],
    "within looser limits": [
        (
            "passed",
            payload(
                replace(DRIFT, what="clip.page"),
                case=OUTSIDE,
                run=RUN,
                looser={"seam": (0.8, 1e-4, "--dsocr-tolerances")},
            ),
        )
    ],
    "left uncompared": [
        drifting(1),
        ("failed", payload(UNGIVEN, case=case_payload("u", MATCH, UNGIVEN, passes=False))),
    ],
    "compared nothing": [("passed", payload())],
    "promised nothing": [("passed", payload(promised=False))],
    "raised": [drifting(0), ("error", payload(fault=FAULT)), ("error", payload(fault=FAULT))],
    "not offered": [
        ("passed", payload(MATCH, *LESS, run=OWN)),
        *[("skipped", payload(*made, left_out="not offered")) for made in ((), (), LESS[:1])],
    ],
    "nothing is offered": [("passed", payload(*LESS))],
    "above the subject": [
        ("passed", payload(MATCH, *LESS, run=OWN)),
        *[("skipped", payload(left_out=level)) for level in ("L2", "L1", "L1", "L3")],
    ],
    "may be missing": [drifting(0), ("skipped", LOST)],
    "missing": [drifting(0), ("error", LOST), ("error", LOST)],
    "known to fail": [drifting(0), ("xfailed", payload(WRONG))],
    "known to fail, all of it": [("xfailed", payload(WRONG))],
    "suspicious": [("passed", payload(SUSPICIOUS, case=case_payload("a", SUSPICIOUS, worst_error=3e-6)))],
    "no boxes": [("passed", payload(MATCH, case=case_payload(boxes={"reference": 0, "subject": 0})))],
    "slower": [("passed", payload(MATCH)), ("failed", payload(SLOW))],
    "flaky": [("rerun", payload(WRONG))],
    "ended as another plugin says": [("passed", payload(MATCH)), ("postponed", payload(MATCH))],
}


def made(name: str) -> RunResult:
    """Return a run with its journal of failures."""
    found = result(*RUNS[name], reason="why")
    found.plan.exit_status = int(bool(found.failing))
    found.options = ["--dsocr-subject=mine:Model", "-k", "a or b"] if found.failing else ()
    if name == "flaky":
        found.add("test_case.py::test[0]", "passed", payload(MATCH))
    if name == "slower":
        roof = Roof(devices()["h200"], "bfloat16", {"sam": Bound(7.0, 7.0, 1.0), "page": Bound(20.0, 9.0, 16.0)})
        slower = Judgement("page", TimingVerdict.SLOWER, 80.0, 100.0, 1.25, 1.18, 1.3, 0.05, 24, 24)
        unknown = Judgement(
            "sam", TimingVerdict.NOT_COMPARED, math.nan, 12.0, math.nan, math.nan, math.nan, 0.05, 0, 0, "none"
        )
        times = measured({"tokenizer": [5.0] * 3, "sam": [12.0] * 3, "page": [100.0] * 3})
        found.perf = PerfRun(times, (slower, unknown), roof=roof).to_json()
        found.add_elapsed(ProcessTimes("", "cpu", 1, 8.0, {"subject": 4.0}))
    return found


def document(name: str) -> RunJson:
    return structs.replace(made(name).document, environment=Environment("Linux", {"torch": "2"}))


def texts(of: RunResult, **given: Any) -> list[str]:
    return [line.text for line in Summary(of, **given).lines]


@pytest.mark.parametrize("name", RUNS)
def test_what_the_terminal_shows(name: str, snapshot: SnapshotAssertion) -> None:
    written: list[str] = []
    reporter = Mock(write_sep=lambda *heading: written.append(" ".join(heading)))
    reporter.write_line = lambda line, **_: written.append(line)
    summary = Summary(made(name), made(name).options, ("dsocr-out/dsocr.json", "dsocr-out/index.html"))
    summary.show(reporter)
    summary.show_causes(reporter)
    assert all(len(line) <= COLUMNS for line in written if not line.startswith("    "))
    assert "\n".join(written) == snapshot


@pytest.mark.parametrize("name", RUNS)
def test_what_the_summary_shows(name: str, snapshot: SnapshotAssertion) -> None:
    assert markdown(document(name)) == snapshot


@pytest.mark.parametrize("name", ["passes", "breaks once, proven", "several causes", "text alone", "raised", "slower"])
def test_what_the_page_shows(name: str, snapshot: SnapshotAssertion) -> None:
    lines = (" ".join(line.split()) for line in Page(html(document(name))).text.splitlines())
    assert "\n".join(filter(None, lines)) == snapshot


@pytest.mark.parametrize("name", ["breaks once, proven", "raised"])
def test_what_a_ci_shows(name: str, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    run = made(name)
    tests = {test.nodeid: dict(of_test(test, test.case_id or "", run.run)) for test in run.tests.values()}
    of_this_run = dict(of_run(run)) | {"dsocr_provenance.resampling": "as the installed Pillow's"}
    assert {"errors": [*errors(run.document)], "run": of_this_run, "tests": tests} == snapshot


def test_what_failed_behind_a_break_is_one_line() -> None:
    run = made("breaks once, proven")
    reports: list[Any] = [Mock(nodeid=name, longrepr="text") for name in run.tests]
    folded = Summary(run).folded(reports)
    assert [one.nodeid[-2] for one in folded] == ["3", "4", "5", "6"], "a test that says its own is not folded"
    assert [one.longrepr == "text" for one in folded] == [False, True, True, True], "the first names those behind it"
    assert Summary(run, verbose=True).folded(reports) == reports
    assert result(*breaking(page="a")).causes[0].unit == "case", "where a page is read in several presets"


def test_of_many_the_first_are_shown_and_the_others_counted() -> None:
    cases = [case_payload(f"c{k}", WRONG, **{**BROKEN, "first_wrong": f"clip.page/{k}"}) for k in range(60)]
    run = result(*(("failed", payload(WRONG, case=case)) for case in cases))
    reporter = Mock()
    Summary(run).show_causes(reporter)
    shown = [call.args[0] for call in reporter.write_line.call_args_list]
    more = next(line.split(":")[0].strip() for line in shown if "more causes" in line)
    assert (sum(line.startswith("first broke ") for line in shown), more) == (3, "and 57 more causes")
    assert markdown(run.document).count("| wrong |") == 50
    whole = {"page": "b", **BROKEN, "first_wrong": "sam.page/0"}
    for crops, groups in (("sam.crops/0", [2]), ("sam.crops/1", [1, 1])):
        cut = {**whole, "page": "a", "first_wrong": crops}
        both = case_payload("a", CROPS, VIEW, **cut), case_payload("b", VIEW, **whole)
        run = result(*(("failed", payload(VIEW, case=case)) for case in both))
        assert [len(one.cases) for one in run.causes] == groups, "a page that is not cut has no crops to break at"
    two = (broken("a", WRONG), *(broken(name, LATER, first_wrong="logits") for name in "bc"))
    assert [(one.what, len(one.cases)) for one in result(*two).causes] == [("logits", 2), ("clip.page", 1)]


def test_an_error_in_the_summary_is_one_line_and_does_not_raise() -> None:
    run = made("passes")
    run.tests["x"] = None  # type: ignore[assignment]
    last = list(Summary(run).lines)[-1]
    assert last.text.startswith("the summary cannot be shown (AttributeError(")
    assert last.markup == BAD
