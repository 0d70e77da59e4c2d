"""Results of shards merged into one, as a single run would report it; refused where they are of different runs."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.perf.run import PerfRun
from pytest_dsocr.perf.statistics import Judgement, Pace
from pytest_dsocr.report.collection import Plan
from pytest_dsocr.report.file import mark_refused, mark_running, write_json
from pytest_dsocr.report.merge import Part, merged, read_parts
from pytest_dsocr.report.times import rows
from tests.perf.made import measured
from tests.report.made import (
    LOST,
    MATCH,
    MISSING,
    WRONG,
    Payload,
    case_payload,
    new_result,
    payload,
    run_payload,
)

Ended = tuple[str, str, Payload]


def of_page(name: str, place: int, *, wrong: bool = False, **changes: Any) -> Ended:
    made = WRONG if wrong else MATCH
    first = {"first_wrong": made.what, "passes": False, "verdict": "WRONG"} if wrong else {}
    case = case_payload(name, made, place=place, **first, **changes)
    return f"test_case.py::test[{name}]", "failed" if wrong else "passed", payload(made, case=case)


def run_of(*tests: Ended, shard: str | None = None) -> dict[str, Any]:
    """A finished run."""
    made = new_result()
    made.plan = Plan(exit_status=int(any(outcome != "passed" for _, outcome, _ in tests)))
    for name, outcome, one in tests:
        run: Any = run_payload(shard=shard)
        made.add(name, outcome, {**one, "run": run})
        made.plan.add([name])
        made.plan.ended.add(name)
    return made.to_json()


def merge(*results: dict[str, Any]) -> dict[str, Any]:
    return merged([Part(Path(f"s{k}"), result) for k, result in enumerate(results, 1)], "dsocr merge")


LOSS = {"lost": {"pages": 0.0}, "allowed": {"pages": 0.0}, "stages": {}}
OF_NO_PAGE = ("test_ids.py::test", "passed", payload(MATCH))
PAGES = [of_page(name, place, loss=LOSS) for place, name in enumerate("cab")]
FIRST = run_of(of_page("c", 0, loss=LOSS), of_page("b", 1, loss=LOSS), OF_NO_PAGE, shard="1/2")
SECOND = run_of(of_page("a", 0, loss=LOSS), shard="2/2")


def test_the_whole_is_what_one_run_would_have_reported() -> None:
    """In whatever order its parts are given."""
    whole = run_of(*PAGES, OF_NO_PAGE)
    for result in (merge(FIRST, SECOND), merge(SECOND, FIRST)):
        result["tests"].sort(key=lambda test: [one["nodeid"] for one in whole["tests"]].index(test["nodeid"]))
        of_the_run = ("id", "started", "ended", "command", "merged")
        assert {name: value for name, value in result.items() if name not in of_the_run} == {
            name: value for name, value in whole.items() if name not in of_the_run
        }
        assert [one["verdict"] for one in result["merged"]] == ["passes", "passes"]


@pytest.mark.parametrize(
    ("bad", "ended"),
    [
        (of_page("a", 0, wrong=True), "wrong"),
        (
            ("test_case.py::test[a]", "failed", payload(WRONG, cause={"what": "sam", "why": "x", "mistakes": []})),
            "wrong",
        ),
        (("test_case.py::test[a]", *LOST), "infrastructure"),
        (("test_case.py::test[a]", *MISSING), "infrastructure"),
    ],
)
def test_what_one_of_them_found_the_whole_has_found(bad: Ended, ended: str) -> None:
    result, alone = merge(FIRST, run_of(bad, shard="2/2")), run_of(*PAGES[::2], bad, OF_NO_PAGE)
    assert (result["passes"], result["ended_as"], result["verdict"]) == (False, ended, "1 of 4 tests failed")
    for name in ("ended_as", "verdict", "counts", "missing", "causes"):
        assert result[name] == alone[name]
    others = {**SECOND, "others_failed": True, "exit_status": 1}
    assert merge(FIRST, others)["ended_as"] == "wrong", "a failure of somebody else's test stays one"
    [failed] = [test for test in result["tests"] if test["why"]]
    assert failed["rerun"] == "pytest 'test_case.py::test[a]'"


def changed(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    result = copy.deepcopy(SECOND)
    change(result)
    return result


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (changed(lambda one: one.update(commit="ffff")), "their commits are abc-dirty and ffff"),
        (changed(lambda one: one["run"].update(key="mini/other")), "key is mini/cpu-float32-eager and mini/other"),
        (
            changed(lambda one: one["run"]["settings"]["tolerances"].update(text=1)),
            "settings: tolerances: text is None and 1",
        ),
        (changed(lambda one: one["left"].update(whole=["d.png"])), r"all pages is \[\] and \['d.png'\]"),
        (changed(lambda one: one["environment"]["versions"].update(torch="1.0")), "torch is .* and 1.0"),
        (changed(lambda one: one["left"].update(by=["-k text"])), r"selected by is \[\] and \['-k text'\]"),
        (changed(lambda one: one["run"].update(shard="2/3")), "they are shards 1/2 and 2/3"),
        (changed(lambda one: one["tests"][0].update(nodeid="test_weak.py::test[a]")), "only s1 has test_case.py::test"),
        (run_of(of_page("c", 0, wrong=True), shard="2/2"), "c is MATCH in one and WRONG in the other"),
    ],
)
def test_parts_of_different_runs_are_refused_in_words(other: dict[str, Any], why: str) -> None:
    with pytest.raises(DsocrError, match=f"s1 and s2 are not of one run: {why}.*; merge only those of one"):
        merge(FIRST, other)


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("roof", 1, "roof"),
        ("roof", {"device": "x", "source": "x", "times": {"page": {"least_ms": "x"}}}, "roof.times"),
        ("in_short", 1, "in_short"),
        ("rounds", {"taken": 1}, "rounds"),
        ("flags", {"x": {}}, "flags"),
        ("no_baseline", 1, "no_baseline"),
    ],
)
def test_of_damaged_times_the_key_is_named(tmp_path: Path, name: str, value: Any, why: str) -> None:
    perf = PerfRun(measured({"page": [1.0, 2.0]}, {})).to_json()
    read_parts([write_json(tmp_path, {**FIRST, "perf": perf}).parent], unfinished=False)
    write_json(tmp_path, {**FIRST, "perf": {**perf, name: value}})
    with pytest.raises(DsocrError, match=f"has a wrong perf.{why}.*; run the suites again"):
        read_parts([tmp_path], unfinished=False)


@pytest.mark.parametrize("name", ["before_ms", "ratio", "low", "high"])
def test_a_judgement_without_its_numbers_is_shown_as_none(name: str) -> None:
    judgement = Judgement("page", Pace.SAME, 1.0, 1.5, 1.5, 1.4, 1.6, 2.0, 2, 2)
    perf = PerfRun(measured({"page": [1.0, 2.0]}, {}), (judgement,)).to_json()
    assert [one.ratio for one in rows(perf)] == ["1.500"]
    perf["judgements"][0][name] = None
    assert [(one.baseline, one.ratio, one.interval) for one in rows(perf)] == [("", "", "")]


def test_a_shard_that_is_not_there_is_no_pass_and_of_many_the_first_are_named() -> None:
    result = merge(FIRST)
    assert (result["passes"], result["verdict"]) == (False, "shard 2/2 is not there")
    assert result["ended_as"] == "infrastructure"
    verdict = merge(changed(lambda one: one["run"].update(shard="2/90000")))["verdict"]
    assert "shard 1/90000 is not there; shard 3/90000" in verdict
    assert verdict.endswith("nor are 89996 more shards")


@pytest.mark.parametrize("shard", ["1/999999999", "0/0", "3/2", "", "of", 5])
def test_what_is_no_shard_is_refused_in_words(shard: Any) -> None:
    with pytest.raises(DsocrError, match=r"the run in s\d calls itself shard .*, which is none; run it again"):
        merge(FIRST, changed(lambda one: one["run"].update(shard=shard)))


def folders(tmp_path: Path, *results: dict[str, Any]) -> Sequence[Path]:
    found = [tmp_path / f"s{k}" for k in range(len(results))]
    for folder, result in zip(found, results, strict=True):
        folder.mkdir()
        write_json(folder, result)
    return found


def test_a_run_that_did_not_finish_is_merged_only_where_that_is_asked_for(tmp_path: Path) -> None:
    [first] = folders(tmp_path, FIRST)
    running, refused = tmp_path / "running", tmp_path / "refused"
    mark_running(running, new_result().identity)
    refused.mkdir()
    mark_refused(refused, new_result().identity, "no weights", "infrastructure")
    for other in (running, refused):
        with pytest.raises(DsocrError, match=f"the run in {other} did not finish; run it again, or give --unfinished"):
            read_parts([first, other], unfinished=False)
        result = merged(read_parts([first, other], unfinished=True), "dsocr merge")
        assert (result["passes"], result["comparisons"]) == (False, 3)
        assert f"the run in {other} did not finish" in result["verdict"]
    with pytest.raises(DsocrError, match="none of the runs has finished"):
        merged(read_parts([running], unfinished=True), "dsocr merge")


def test_a_run_that_was_interrupted_did_not_finish_and_a_wrong_one_stays_wrong(tmp_path: Path) -> None:
    second = {**SECOND, "exit_status": 2, "not_ended": ["test_case.py::test[d]"], "passes": False, "planned": 2}
    with pytest.raises(DsocrError, match="did not come to its end"):
        read_parts(folders(tmp_path, FIRST, second), unfinished=False)
    assert merge(FIRST, second)["ended_as"] == "interrupted"
    assert Part(tmp_path, {**SECOND, "exit_status": 2}).unfinished, "though each of its tests ended"
    failed = ("test_case.py::test[a]", "failed", payload(MATCH, case=case_payload("a")))
    first = run_of(failed, of_page("b", 1), shard="1/2")
    result = merge(first, {**run_of(of_page("c", 0), shard="2/2"), "exit_status": 2})
    assert (result["exit_status"], result["ended_as"]) == (1, "wrong")
    [case] = [case for case in result["cases"] if case["id"] == "a"]
    assert (case["passes"], case["within"]) == (False, True), "its test failed it, and no limit"
