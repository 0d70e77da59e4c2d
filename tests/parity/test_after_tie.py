"""Over a tie: a subject whose own steps give what it reads passes; one that reads something else fails."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.cases.run import ask
from pytest_dsocr.compare.case import CaseReport, judge
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.observation.case import make_case
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.reference.opening import Wanted, open_recorded
from pytest_dsocr.subjects.session import SessionSubject
from tests.recordings import FOLDER

PAGES = ("figures_009", "receipt_086")
LIMITS = tolerances("bfloat16", "float32", same_key=False)


class Nonsense(SessionSubject):
    """Its steps are right, and its text is not what they give."""

    def read(self, page: Path, **options: Any) -> str:
        return "nonsense"


@pytest.fixture(scope="module")
def session() -> Engine[Any]:
    return Engine.from_checkpoint(MINI, dtype="bfloat16")


def tied(subject: SessionSubject) -> Mapping[str, Verdict]:
    """Hold it against the recording in float32; gives the verdicts of the first page with a tie on this processor."""
    reference, tokenizer = open_recorded([FOLDER], Wanted(resolve(MINI))), resolve(MINI).tokenizer
    for page in (page for page in shipped("all") if page.stem in PAGES):
        case = make_case(page, "markdown", "gundam")
        report: CaseReport = judge(ask(subject, reference, case, tokenizer=tokenizer), LIMITS)
        found = {one.what: one.verdict for one in report.comparisons}
        if found["tokens"] is Verdict.TIE_FLIP:
            return found
    pytest.fail("no tie was in this")


def test_what_is_not_read_through_the_steps_fails_after_a_tie_as_well(session: Engine[Any]) -> None:
    found = tied(Nonsense(session))
    assert found["text"] is found["boxes"] is found["result.mmd"] is Verdict.WRONG


def test_what_its_own_steps_give_after_a_tie_passes(session: Engine[Any]) -> None:
    found = tied(SessionSubject(session))
    assert Verdict.WRONG not in found.values()
    assert (found["read"], found["text"]) == (Verdict.MATCH, Verdict.TIE_FLIP)
