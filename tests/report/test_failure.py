"""The text of a failing test: each is pinned by a snapshot, and fits one screen."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.base.words import COLUMNS
from pytest_dsocr.compare.case import CaseReport, Explanation, FurtherCause
from pytest_dsocr.compare.text import compare_text
from pytest_dsocr.compare.verdict import Comparison, Reason, Symptom, Verdict, not_compared
from pytest_dsocr.contract.markup import Box
from pytest_dsocr.describe.description import Description
from pytest_dsocr.records.reference_result import SpanSeen
from pytest_dsocr.report import case_result, failure
from pytest_dsocr.report.failure import MOST_LINES, TestFailure
from pytest_dsocr.report.words import rerun
from tests.compare.made import OUTPUT
from tests.report.made import DRIFT, MATCH, WRONG, config, recorded, report

AGAIN = rerun("suites/parity/test_case.py::test_vision[page-tiny-free-clip]", ("--dsocr-subject=mine:Model",))
CAUSE = "what real ports got wrong at this stage, and what tells one of these mistakes from another, " * 2
FINDING = "tokens are right when given the reference's vision features"
WORSE = Comparison("projector.page", Verdict.WRONG, "relative error 8.9e-01 (allowed 1e-04)", 0.89, ("its anatomy",))
UNGIVEN = not_compared("clip.page", Reason.NOT_GIVEN)
MANY = [
    Comparison(f"prefill/{k}", Verdict.WRONG, "relative error 1.0e+00 " * 30, 1.0, tuple("abcdefgh")) for k in range(30)
]
HOSTILE = Comparison("text", Verdict.WRONG, "\x1b[2J\nparts at", None, ("subject \x9b31m", "reference \r\n ok"))
SPELT = compare_text("The minuets of the meeting", "The minutes of the meeting", 0.0)
MOVED = (SpanSeen("title", (Box(1, 2, 3, 13),)), OUTPUT.spans[1])

Made = Callable[[Path], tuple[list[Comparison], CaseReport | None]]
FAILURES: dict[str, Made] = {
    "breaks_here": lambda page: ([WRONG, WORSE], report(page, MATCH, DRIFT, WRONG, WORSE, findings=(FINDING,))),
    "breaks_elsewhere": lambda page: ([WORSE], report(page, MATCH, DRIFT, WRONG, WORSE, findings=(FINDING,))),
    "was_not_given": lambda page: ([UNGIVEN], report(page, MATCH, UNGIVEN)),
    "boxes_moved": lambda page: ([Comparison("boxes", Verdict.WRONG, "1 moved")], report(page, spans=MOVED)),
    "text_differs": lambda page: ([SPELT], report(page, MATCH, SPELT)),
    "gravest_first": lambda page: ([UNGIVEN, WORSE], report(page, UNGIVEN, WORSE)),
    "of_no_case": lambda page: ([Comparison("cache", Verdict.WRONG, "901 positions; allowed 900")], None),
    "very_much": lambda page: (MANY, report(page, *MANY, findings=("a b " * 300,) * 9)),
    "hostile": lambda page: ([HOSTILE], report(page, MATCH, HOSTILE)),
}


@pytest.fixture(autouse=True)
def one_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the table of hints, which has its own tests."""
    for module in (failure, case_result):
        monkeypatch.setattr(module, "hint", lambda *_, is_described=False, **__: "" if is_described else CAUSE)


@pytest.mark.parametrize("made", FAILURES.values(), ids=FAILURES)
def test_the_text_of_a_failure(made: Made, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    message = text(*made(tmp_path))
    lines = message.splitlines()
    assert len(lines) <= MOST_LINES
    assert all(len(line) <= COLUMNS for line in lines)
    assert message.replace("\n", "").isprintable()
    assert lines[-1].startswith("rerun")
    assert message == snapshot


def test_without_a_case_a_cause_is_reported_of_inputs_and_files_and_of_nothing_else() -> None:
    """No search was made, so only a symptom of exact values suggests a mistake, and nothing does for a text."""
    mask = replace(WRONG, what="images_seq_mask")
    assert any(line.startswith("check") for line in _alone(replace(mask, signs=frozenset({Symptom.SHUFFLED}))))
    for other in ("images_seq_mask", "read", "prefill/again", "text/read again", "images_spatial_crop", "images_ori"):
        assert not any(line.startswith("check") for line in _alone(replace(WRONG, what=other)))


@pytest.mark.parametrize("is_proven", [True, False])
def test_a_guess_is_reported_only_where_nothing_is_proven(is_proven: bool, tmp_path: Path) -> None:
    said = report(tmp_path, MATCH, WRONG)
    explanation = Explanation("with the exact GELU", WRONG.what, is_proven=is_proven)
    further = (FurtherCause(Explanation("with a newline", "logits", ("x",), is_proven=is_proven)),)
    said = replace(said, exchange=replace(said.exchange, explanation=explanation, further=further))
    lines = text([WRONG], said).splitlines()
    assert "explained       with the exact GELU" in lines
    assert f"also wrong      logits: {'with a newline (proven)' if is_proven else 'perhaps with a newline'}" in lines
    assert any(line.startswith("check") for line in lines) is not is_proven


def _alone(wrong: Comparison) -> list[str]:
    return TestFailure([wrong], None, config()).text(None, AGAIN).splitlines()


def text(failed: list[Comparison], said: CaseReport | None, **changes: Any) -> str:
    return TestFailure(failed, said, config(**changes)).text(recorded(), AGAIN)


@pytest.mark.parametrize("share", [1.0, 0.2])
def test_a_description_takes_the_place_of_a_guess(share: float, tmp_path: Path) -> None:
    made = report(tmp_path, WRONG)
    relation = Description("inserted", "one token 0 (BOS) inserted at 1,024", share)
    made = replace(made, exchange=replace(made.exchange, described={WRONG.what: relation}))
    lines = text([WRONG], made).splitlines()
    assert "measured        one token 0 (BOS) inserted at 1,024" in lines
    assert any(line.startswith("check ") for line in lines) is not relation.explains
    origin = TestFailure([WRONG], made, config()).origin
    assert (origin.why == relation.text) is relation.explains
