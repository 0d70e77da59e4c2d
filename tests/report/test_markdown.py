"""The summary of a run as Markdown: all that is wrong, slower or missing, and nothing of the subject's as markup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_dsocr.report.file import RunIdentity, mark_refused
from pytest_dsocr.report.markdown import cell, markdown, write_summary
from tests.report.made import MATCH, WRONG, case_payload, payload, run_payload
from tests.report.test_ended import SLOWER
from tests.report.test_result import result
from tests.report.test_times import SAME, perf
from tests.report.test_times import SLOWER as OF_DECODE

CAUSE = "the projector's bias"
BROKEN = case_payload(
    "a", WRONG, passes=False, verdict="WRONG", first_wrong="clip.page", cause=CAUSE, counts={"WRONG": 1}
)
EVIL = "<img src=x> | `code` @somebody [link](https://example.org) **bold**\n## title"


def finished(*tests: Any, status: int = 1) -> dict[str, Any]:
    made = result(*tests)
    made.plan.exit_status = status
    made.options = ["--dsocr-subject=mine:Ocr"]
    return made.to_json()


def test_it_says_what_is_wrong_from_what_and_how_to_run_it_again() -> None:
    told = markdown(
        finished(
            ("passed", payload(MATCH, run=run_payload(subject="mine:Ocr"))),
            ("failed", payload(WRONG, case=BROKEN)),
            ("failed", payload(left_out="gpu", reason="needs a GPU")),
        )
    ).splitlines()
    assert told[0] == "## DeepSeek-OCR: wrong"
    assert told[2] == "2 of 3 tests failed"
    assert "| subject | mine:Ocr, L2, mini/cpu-float32-eager |" in told
    assert any(line.startswith("| reference | recorded on 2026-11-21, mini/cpu-float32-eager") for line in told)
    assert "| comparisons | 2 in 1 case: 1 WRONG, 1 MATCH |" in told
    assert f"| a | clip.page | relative error 7.1e-01 (allowed 1e-04) | {CAUSE} |" in told
    assert "| test\\_case.py::test\\[1\\] | wrong | clip.page: relative error 7.1e-01 (allowed 1e-04) |" in told
    assert "| test\\_case.py::test\\[2\\] | infrastructure | needs a GPU |" in told
    assert "| gpu | 1 | needs a GPU |" in told
    assert told[-2:] == ["    pytest 'test_case.py::test[1]' --dsocr-subject=mine:Ocr", "    pytest suites"]


def test_what_is_slower_has_its_interval() -> None:
    told = markdown(finished(("failed", {**SLOWER[1], "perf": perf(OF_DECODE, SAME)})))
    assert "### Slower" in told
    assert "| decode | 14.2 ms | 17 ms | 1.200 | 1.180 to 1.225 |" in told
    assert "| page" not in told, "which is the same"


def test_a_run_that_passes_has_nothing_in_the_way() -> None:
    told = markdown(finished(("passed", payload(MATCH)), status=0))
    assert told.startswith("## DeepSeek-OCR: passes\n\npasses\n")
    assert [line for line in told.splitlines() if line.startswith("###")] == ["### To run again"]


def test_nothing_that_a_model_or_a_page_says_is_markup() -> None:
    for secret in ("<", "`", "@", "|", "*", "[", "\n"):
        assert secret not in cell(EVIL).replace("\\" + secret, "")
    evil = case_payload(EVIL, WRONG, passes=False, first_wrong="clip.page", cause=EVIL)
    told = markdown(finished(("failed", payload(WRONG, case=evil, run=run_payload(subject=EVIL)))))
    assert "<img" not in told.replace("\\<img", "")
    assert "\n## title" not in told


def test_a_long_table_is_cut_and_says_so() -> None:
    told = markdown(finished(*[("failed", payload(WRONG))] * 60))
    assert told.count("| wrong |") == 50
    assert "\nand 10 more\n" in told


def test_a_refused_run_says_why(tmp_path: Path) -> None:
    identity = RunIdentity("1f", "2026-11-22T04:00:00+00:00", None, "pytest suites")
    write_summary(mark_refused(tmp_path, identity, "no weights here", "infrastructure"), tmp_path)
    told = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert told.startswith("## DeepSeek-OCR: infrastructure\n\nno weights here\n")
    assert told.endswith("    pytest suites\n")
