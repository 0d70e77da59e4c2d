"""Counts of a run, its elapsed time, and the next command."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_dsocr.cli.compare import split
from pytest_dsocr.cli.main import parser
from pytest_dsocr.plugin.config import typed_options
from pytest_dsocr.report.run_sides import RunSides
from pytest_dsocr.report.terminal import Summary
from pytest_dsocr.report.times import PARTS, by_part, in_line, in_table
from pytest_dsocr.report.words import BY_ENGINE, by_engine, following, record, rerun, suites_folder
from pytest_dsocr.report.worker_report import ProcessTimes
from tests.report.made import GUESS, MADE, MATCH, WRONG, case_payload, payload, result, run_payload


@pytest.mark.parametrize(
    ("of_engine", "words"),
    [([False], ""), ([True], f", {BY_ENGINE}"), ([True, False, True], f", 2 of 3 cases {BY_ENGINE}")],
)
def test_a_verdict_says_how_far_it_is_the_engines(of_engine: list[bool], words: str) -> None:
    assert by_engine([case_payload(str(k), by_engine=one) for k, one in enumerate(of_engine)]) == words


def process(worker: str, elapsed_s: float, **seconds: float) -> ProcessTimes:
    return ProcessTimes(worker, "cpu", 1, elapsed_s, seconds)


TWO = [process("gw0", 8.0, subject=4.0, comparing=0.5), process("gw1", 10.0, subject=6.0, drawing=0.01)]


def test_every_second_of_the_processes_is_of_one_part() -> None:
    none = dict.fromkeys(PARTS, 0.0)
    assert by_part(TWO) == {**none, "subject": 10.0, "comparing": 0.5, "drawing": 0.01, "other": pytest.approx(7.49)}
    assert by_part([process("", 3.0, **{"tests of cache": 2.0})]) == none | {"tests of cache": 2.0, "other": 1.0}
    assert by_part([process("", 3.0, subject=4.0)])["other"] == 0.0, "never less than nothing, though clocks differ"
    assert in_line([process("", 0.01)]) == "0.0 s on 1 worker: nothing of note"
    assert len([*in_table(TWO)]) == len(PARTS) + 1


@pytest.mark.parametrize("verbose", [False, True])
def test_the_summary_has_the_line_and_on_request_the_table(verbose: bool) -> None:
    shown = [payload(MATCH, run=run_payload(), elapsed=one) for one in TWO]
    lines = [line.text for line in Summary(result(*(("passed", one) for one in shown)), verbose=verbose).lines]
    assert "time            10.0 s on 2 workers: subject 10.0, comparing 0.5, other 7.5" in lines
    assert any(line.split()[:4] == ["subject", "10.0", "s", "56%"] for line in lines) is verbose


GPU = dataclasses.replace(MADE, checkpoint="synthetic:full", device="cuda:0", dtype="bfloat16")
MINI = "--checkpoint=mini --device=cpu --dtype=float32 --attention=eager"
RECORD = f"dsocr vendor record path/to/vendor dev-3 --presets gundam --prompts markdown {MINI}"
LOST = payload(left_out="recording", reason="lost", run=run_payload())


@pytest.mark.parametrize(
    ("run", "command"),
    [
        (None, "dsocr vendor record path/to/vendor PAGES"),
        (run_payload(), RECORD),
        (
            run_payload(pages=["my pages/a.png"], presets=["tiny", "gundam"], prompts=["free"]),
            f"dsocr vendor record path/to/vendor 'my pages/a.png' --presets tiny gundam --prompts free {MINI}",
        ),
        (
            run_payload(provenance=GPU),
            "dsocr vendor record path/to/vendor dev-3 --presets gundam --prompts markdown "
            "--checkpoint=synthetic:full --device=cuda:0 --dtype=bfloat16 --attention=eager",
        ),
    ],
)
def test_what_is_missing_is_recorded_with_the_runs_choices(run: RunSides | None, command: str) -> None:
    assert record(run) == command
    parser().parse_args(shlex.split(command)[1:])


@pytest.mark.parametrize(
    ("tests", "command"),
    [
        (
            [("passed", payload(MATCH, run=run_payload(subject="a:B", reference="engine")))],
            "pytest suites --dsocr-reference=path/to/vendor",
        ),
        ([("error", replace(LOST, run=run_payload(subject="b")))], f"{RECORD}\npytest suites --dsocr-reference=engine"),
        ([("error", LOST), ("failed", payload(WRONG))], "pytest 'test_case.py::test[1]'"),
    ],
)
def test_the_next_command_is_that_of_what_came_out(tests: list[tuple[str, Any]], command: str) -> None:
    assert [message for _, message in following(result(*tests))] == command.splitlines()


def test_a_failure_that_shows_its_own_command_is_not_run_again_by_a_second_line() -> None:
    told = result(("failed", payload(WRONG, cause=GUESS)))
    assert [len([*following(told, options)]) for options in ((), ("--tb=no",))] == [0, 1]


ADDED = ("-pdsocr", "-pno:randomly", "--dsocr-out=dsocr-out", "--dsocr-pages=dev-20", "--dsocr-subject=a:B")
SUITE_TEST = str(suites_folder() / "parity" / "test_case.py") + "::test_text"


@pytest.mark.parametrize(
    ("nodeid", "options", "command"),
    [
        (
            f"{SUITE_TEST}[invoice_016-gundam-markdown]",
            ADDED,
            "dsocr compare invoice_016 --subject=a:B -- -k 'test_text[invoice_016-gundam-markdown]'",
        ),
        (
            f"{SUITE_TEST}[scan-tiny-free]",
            ADDED,
            "dsocr compare dev-20 --subject=a:B -- -k 'test_text[scan-tiny-free]'",
        ),
        ("test_case.py::test_text", ("--pyargs", "-k", "case", "-x", "-kb"), "dsocr compare -- -x -k test_text"),
        (f"{SUITE_TEST}[my scan-tiny-free]", (), "dsocr compare -- -k test_text"),
        ("suites/parity/test_case.py::test_text", ("--pyargs", "-x"), "dsocr compare -- -x -k test_text"),
        (SUITE_TEST.replace("parity", "cost"), ("--dsocr-level=L2",), None),
        ("test_it.py::test_text[invoice_016-a]", ADDED[3:4], None),
    ],
)
def test_a_test_of_the_suites_is_run_again_by_compare(nodeid: str, options: Sequence[str], command: str | None) -> None:
    again = rerun(nodeid, options, Path())
    assert again == command or (command is None and again.startswith("pytest "))
    if command:
        named = split(shlex.split(again)[1:])[0]
        parser().parse_args(named)


def test_what_was_typed_beside_the_tests_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Defaults are left out, unless the environment or the ini file says otherwise."""
    typed = ("suites", "--dsocr-subject", "a:B", "--dsocr-dtype=float32", "-n", "2", "other.py::test")
    config: Any = SimpleNamespace(
        args=["suites", "other.py::test"],
        invocation_params=SimpleNamespace(args=typed),
        getini={"dsocr_device": "cuda"}.get,
    )
    assert typed_options(config) == ["--dsocr-subject=a:B", "-n", "2"]
    monkeypatch.setenv("DSOCR_DTYPE", "bfloat16")
    assert typed_options(config) == ["--dsocr-subject=a:B", "--dsocr-dtype=float32", "-n", "2"]
