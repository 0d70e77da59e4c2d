"""Failures grouped by cause: a proven mistake, the first break of cases, or the message of a test."""

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

from msgspec import structs, to_builtins

from pytest_dsocr.compare.verdict import Reason, Symptom, not_compared
from pytest_dsocr.describe.description import OF_STATE, Description
from pytest_dsocr.explain.hints import OF_TEXT_ALONE
from pytest_dsocr.explain.proof import UNTOLD
from pytest_dsocr.records.names import ComparisonKind
from pytest_dsocr.report.case_result import FurtherResult
from pytest_dsocr.report.cause import also_failed, others_failed
from pytest_dsocr.report.causes import causes_of
from pytest_dsocr.report.outcomes import TestResult, judged_by_tests
from pytest_dsocr.report.terminal import Summary
from pytest_dsocr.report.worker_report import FailureOrigin
from tests.report.made import DRIFT, FAULT, RIGHT, WRONG, case_payload, failed, payload, result, shown


def test_a_further_cause_that_other_pages_show_first_is_shown_once() -> None:
    seen, wrong = Description("located", "a norm is wrong", 1.0), {"verdict": "WRONG", "passes": False}
    behind = FurtherResult("prefill/1", "by none of 9", False, [])
    both = [case_payload(name, **wrong, first_wrong="vision_fusion", further=[behind], cause="a") for name in "ab"]

    def numbered(**shown: Any) -> list[int]:
        alone = case_payload("c", **wrong, first_wrong="prefill/1", **shown)
        return [len(one.numbered) for one in causes_of([judged_by_tests(one, []) for one in (*both, alone)], [])]

    later = failed("t.py::second", replace(WRONG, what="prefill/1"), cause=shown("prefill/1", "what makes prefill/1"))
    alone = case_payload("c", **wrong, first_wrong="prefill/1", described=seen)
    found = causes_of([judged_by_tests(one, []) for one in (*both, alone)], [later])
    assert [len(one.tests) for one in found] == [0, 1], "what breaks there belongs there, and not to a larger group"
    assert numbered(described=seen) == [0, 0]
    assert numbered(cause="what makes prefill/1") == [2, 0], "what other pages do not describe stays"


def test_a_verdict_comes_before_errors_of_the_machine_however_many_these_are() -> None:
    lost = ("error", payload(fault={**FAULT, "case": None, "infrastructure": True}))
    run = result(lost, lost, lost, ("failed", payload(WRONG, cause=shown("clip.page", "a"))), lost)
    assert [one.what for one in run.causes] == ["clip.page", "prefill"]
    reporter = Mock()
    Summary(run).show_causes(reporter)
    lines = [call.args[0] for call in reporter.write_line.call_args_list]
    assert ["clip.page" in lines[0], "prefill" in lines[0], "prefill" in lines[1]] == [True, False, True]


def test_every_failure_has_one_cause_the_surest_that_is_known_of_it() -> None:
    broke = {"verdict": "WRONG", "passes": False, "explained": "with x", "proven": True, "cause": "a, or x"}
    crops = case_payload("a", WRONG, **broke, first_wrong="clip.page", mistakes=["x"])
    view = case_payload("b", DRIFT, **broke, first_wrong="images_ori", mistakes=["x", "y"])
    fault: Any = {"case": None, "stage": "sam", "why": "no kernel", "infrastructure": False}
    tests = [
        failed("t.py::own", WRONG, case=crops),
        failed("t.py::case[a]", WRONG, case=crops, cause=shown("clip.page", "with x", "x")),
        failed("t.py::view", cause=shown("images_ori", "a, or x")),
        failed("t.py::other", cause=shown("read", "with y, or x", "y", "x")),
        *(failed(f"t.py::page[{k}]", replace(WRONG, measured=f"{k}"), cause=shown("ids", "a")) for k in range(3)),
        failed("t.py::page[other]", cause=shown("ids", "b")),
        failed("t.py::elsewhere", cause=shown("ids", "a")),
        *(failed(f"t.py::raises_{k}", fault=fault) for k in range(2)),
        *(failed(f"t.py::asserts[{k}]", reason="assert 0") for k in range(2)),
        failed("t.py::odd", replace(WRONG, what=ComparisonKind.ODD_PAGE.name_of("tie")), cause=shown("", "the grid")),
    ]
    found = causes_of([judged_by_tests(one, tests) for one in (crops, view)], tests)
    assert [(one.what, one.cases, [test[6:] for test in one.tests]) for one in found] == [
        ("clip.page", ["a", "b"], ["case[a]", "odd", "other", "view", "own"]),
        ("ids", [], ["page[0]", "page[1]", "page[2]"]),
        ("sam", [], ["raises_0", "raises_1"]),
        *[("", [], [f"asserts[{k}]"]) for k in range(2)],
        *[("ids", [], [name]) for name in ("elsewhere", "page[other]")],
    ], "of two that say the same in other functions each is its own; of one that says its own it is not known"
    assert found == causes_of([judged_by_tests(one, tests) for one in (crops, view)], tests[::-1])


def test_a_test_that_proves_what_the_pages_name_perhaps_is_of_their_cause() -> None:
    broke = {"verdict": "WRONG", "passes": False, "first_wrong": "sam.crops/0", "explained": "with x"}
    case = case_payload("a", WRONG, **broke, mistakes=["x"])
    proof, other = (failed(f"t.py::{name}", cause=shown("sam.page/0", f"with {name}", name)) for name in ("x", "other"))
    found = causes_of([judged_by_tests(case, [])], [proof, other])
    assert [(one.cases, one.tests) for one in found] == [(["a"], ["t.py::x"]), ([], ["t.py::other"])]
    case = case_payload("a", WRONG, **broke | {"explained": f"{UNTOLD}: x or y"}, mistakes=["x"])
    assert len(causes_of([judged_by_tests(case, [])], [proof, other])) == 3, "the pages do not name it"


def test_a_tensor_without_a_hint_of_its_own_belongs_to_the_cases_that_break_there_or_before() -> None:
    broke = {"verdict": "WRONG", "passes": False, "first_wrong": "images_ori", "cause": "a smaller page"}
    case = case_payload("a", WRONG, **broke)
    pixels, logits = (replace(WRONG, what=what) for what in ("images_ori", "logits/from 1 on"))
    tests = [
        failed("t.py::case", WRONG, case=case),
        failed("t.py::pixels", pixels, cause=shown("")),
        failed("t.py::later", logits, cause=shown("")),
        failed("t.py::same", pixels, cause=shown("", "whether the cause is a smaller page")),
        failed("t.py::own", pixels, cause=shown("", "whether the cause is grey bars")),
        failed("t.py::text", replace(WRONG, what="text/together", error=None), cause=shown("")),
    ]
    found = causes_of([judged_by_tests(case, tests)], tests)
    names = [{test[6:] for test in one.tests} for one in found]
    assert names == [{"case", "pixels", "later", "same", "text"}, {"own"}]
    assert found[0].follow == ["t.py::text"]


def test_what_a_test_finds_besides_the_cause_is_shown_the_most_decisive_first() -> None:
    wrong = {"verdict": "WRONG", "passes": False, "cause": "what makes logits"}
    size, keys, later, text = (
        replace(WRONG, what=what, error=error)
        for what, error in (("cache/bytes", None), ("cache/keys", 0.5), ("logits/step 1", 0.5), ("text/together", None))
    )

    def own(what: str, *tests: TestResult) -> list[str]:
        case = case_payload("a", replace(WRONG, what=what), **wrong, first_wrong=what)
        [found] = causes_of([judged_by_tests(case, [])], tests)
        assert found.lines[1:] == found.own, "a hint that says nothing is left out"
        return [one.removeprefix("also found by ") for one in found.own]

    named = ("keys[1]", keys), ("keys[2]", keys), ("size", size), ("later", later), ("text", text)
    tests = [failed(f"t.py::{name}", one, cause=shown("")) for name, one in named]
    assert [one.partition(":")[0] for one in own("logits", *tests)] == ["size", "keys[1]"]
    assert [one.partition(":")[0] for one in own("prefill/0", *tests)] == ["size"], "wrong layers have wrong keys"
    origin = shown("prefill", "what makes prefill: every block is right")
    for error, ending in ((1e-7, ["every block is right"]), (1e-3, [])):
        first = replace(DRIFT, what="prefill/0", error=error)
        lines = own("prefill/0", failed("t.py::second", first, replace(WRONG, what="prefill"), cause=origin))
        assert [one.rpartition("; ")[2] for one in lines] == ending, "it shows another cause only if the first is right"
    cut = FailureOrigin("text", "the first 39 are missing", [], "the first 39 are missing")
    [line] = own("text", failed("t.py::second", replace(WRONG, what="text"), cause=cut))
    assert line.endswith(cut.described)


def test_other_failures_have_the_same_reason_only_if_it_is_proven() -> None:
    broke = {"verdict": "WRONG", "passes": False, "first_wrong": "prefill/0", "explained": "with x", "mistakes": ["x"]}
    wrong = [replace(WRONG, what=what) for what in ("prefill/0", "prefill/1", "artefacts", "logits")]

    def said(**more: Any) -> str:
        case = case_payload("a", *wrong, **broke | more)
        tests = [failed(f"t.py::case[{k}]", *wrong, case=case, cause=shown("prefill/0")) for k in range(2)]
        [found] = causes_of([judged_by_tests(case, tests)], tests)
        return others_failed(found)

    assert said(proven=True) == "1 more test failed for the same reason"
    assert said().startswith("1 more test failed at the rest of prefill, logits, artefacts, perhaps")


def test_a_single_test_without_a_comparison_of_a_case_has_a_line_of_its_own() -> None:
    reporter = Mock()
    run = result(("failed", payload(replace(WRONG, what="text/together"), cause=shown(""))))
    Summary(run).show_causes(reporter)
    [line] = [call.args[0] for call in reporter.write_line.call_args_list]
    assert "text/together" in line


def test_failures_of_later_stages_may_follow_from_the_first_cause_and_those_of_earlier_ones_do_not() -> None:
    alike = not_compared("text/read again", Reason.TELLS_NOTHING)
    text, ids, file = (replace(WRONG, what=what, error=None) for what in ("text/together", "input_ids", "result.mmd"))
    broke = {"verdict": "WRONG", "passes": False, "first_wrong": "prefill", "cause": "a"}
    tests = [
        failed(f"t.py::{name}", one, cause=shown("", why))
        for name, one, why in (
            ("alike", alike, ""),
            ("text", text, ""),
            ("told", text, "the cache"),
            ("ids", ids, ""),
            ("file", file, ""),
        )
    ]
    found = causes_of([judged_by_tests(case_payload("a", **broke), tests)], tests)
    assert [one.follow for one in found] == [["t.py::alike", "t.py::text"], [], [], []]
    assert "2 of them perhaps" in also_failed(structs.replace(found[0], tests=["t.py::case", *found[0].tests]))


def test_hints_that_differ_in_numbers_and_quoted_values_alone_are_one_cause() -> None:
    """Cases described in the same words have that cause too, unless a mistake is proven there."""
    said = "{} tokens {} ('{}') in place of token {} ('{}') at {}".format
    other = "one token 0 ('BOS') left out at 1"
    inserted = Description("replaced", said(3, 7, "a", 9, "and b", 696), 1.0)
    case = {"verdict": "WRONG", "passes": False, "first_wrong": "input_ids", "cause": None, "described": inserted}
    ids = replace(WRONG, what="input_ids/text", error=None)
    hints = [("one", said(8, 1, "F", 1, "Free", 2)), ("two", said(2, 5, "(", 7, "Parse", 12)), ("three", other)]
    tests = [failed(f"t.py::{name}", ids, cause=shown("input_ids/text", why)) for name, why in hints]

    def grouped(**more: Any) -> list[list[str]]:
        return [one.tests for one in causes_of([judged_by_tests(case_payload("a", **case | more), tests)], tests)]

    assert grouped() == [["t.py::one", "t.py::two"], ["t.py::three"]]
    assert grouped(proven=True, mistakes=["x"]) == [[], ["t.py::one"], ["t.py::three"], ["t.py::two"]]
    counts = [replace(ids, measured=f"{k}; expected 4") for k in range(2)]
    told = [failed(f"t.py::page[{k}]", one, cause=shown("input_ids/image")) for k, one in enumerate(counts)]
    assert [len(one.tests) for one in causes_of([], told)] == [2]


def test_state_between_pages_comes_first_and_takes_in_what_may_follow_from_it() -> None:
    """Without a page that was right when it was read first, state explains no page."""
    again = replace(WRONG, what="text/read again", signs=frozenset((Symptom.STATE,)))
    broke = {"verdict": "WRONG", "passes": False, "first_wrong": "text", "cause": "every stage"}
    wrong = case_payload("b", replace(WRONG, what="text"), **broke)
    tests = [
        failed("t.py::case[b]", replace(WRONG, what="text"), case=wrong, cause=shown("text", "every stage")),
        failed("t.py::again", again, cause=shown("", "whether it differs by state")),
        failed("t.py::form", replace(WRONG, what="text"), cause=shown("text", "how a palette is read")),
        failed("t.py::ids", replace(WRONG, what="input_ids"), cause=shown("input_ids", "one BOS")),
    ]

    def grouped(first: dict[str, Any]) -> list[tuple[str, list[str]]]:
        cases = [judged_by_tests(one, []) for one in (case_payload("a", **broke | first), wrong)]
        found = causes_of(cases, tests)
        assert [one.is_state for one in found] == ["again" in one.tests[0] for one in found]
        return [(one.said.partition(":")[0], [test[6:] for test in one.tests]) for one in found]

    state = Symptom.STATE.sentence
    assert grouped(RIGHT)[0] == (state, ["again", "case[b]", "form"])
    assert (state, ["again"]) in grouped({}), "the first page is wrong as well"
    case = {"id": "a", **to_builtins(case_payload("a")), "first_wrong": None}
    of_tests = [("passed", payload(DRIFT, case=case)), *(("failed", one.sent) for one in tests[:2])]
    reruns = [one.rerun or "" for one in result(*of_tests).document.tests[1:]]
    assert ["[" in one for one in reruns] == [False, False], "alone, the page is read first, and is right"
    del tests[1]
    for kind in OF_STATE:
        seen = Description(kind, "vision gives another", 1.0)
        assert causes_of([judged_by_tests(case_payload("a", **broke, described=seen), [])], tests)[0].why == seen.text


def test_wrong_texts_are_perhaps_of_one_cause_and_guesses_about_inputs_give_way_to_what_is_known() -> None:
    text, ids, other = (replace(WRONG, what=what, error=None) for what in ("text", "input_ids", "images_seq_mask"))
    broke = {"verdict": "WRONG", "passes": False}
    page = case_payload("a", text, **broke, first_wrong="text", cause=f"every stage: {OF_TEXT_ALONE}; boxes differ")
    tests = [
        failed("t.py::second", text, cause=shown("text", f"every stage: {OF_TEXT_ALONE}")),
        failed("t.py::own_steps", replace(text, what="read"), cause=shown("read")),
        failed("t.py::prompt", replace(text, what="read/another prompt"), cause=shown("")),
        failed("t.py::read", replace(text, what="read"), cause=shown("read", "what makes read; 9 not tried")),
        failed("t.py::other", text, cause=shown("text", "whether the cause is a cache")),
    ]
    names = [[test[6:] for test in one.tests] for one in causes_of([judged_by_tests(page, [])], tests)]
    assert names == [["second", "own_steps", "read", "prompt"], ["other"]]

    tests = [
        failed("t.py::guess", ids, cause=shown("", "that it is read so")),
        failed("t.py::measured", other, cause=shown("", "two ids left out, as none of 9 gives the same")),
        failed("t.py::found", ids, cause=shown("", "whether the cause is y")),
    ]

    def left(**more: Any) -> list[str]:
        page = case_payload("a", ids, **broke | {"first_wrong": "input_ids", "cause": "a"} | more)
        return sorted(test[6:] for one in causes_of([judged_by_tests(page, [])], tests)[1:] for test in one.tests)

    assert left() == ["found", "guess", "measured"]
    assert left(described=Description("inserted", "one id", 1.0)) == ["found", "measured"]
    assert left(proven=True, explained="with x", mistakes=["x"]) == ["found"]
