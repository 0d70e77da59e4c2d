"""A live reference works on the next case while nobody waits for it; each is asked once, and it ends when told to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from pytest_dsocr.observation.case import Case, PageFaultError, make_case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.observation.packing import pack
from pytest_dsocr.reference.answers import Ahead, KeptReference, Store
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.protocol import ReferenceFaultError
from suites.contract.pages import write_page
from tests.reference.conftest import STAND_IN
from tests.reference.played import LOADED, await_, played
from tests.reference.test_worker import same

CHECKPOINT, TOKENS, LONG_S = "synthetic:tiny", 2, 60.0


class Gated(LiveReference):
    """Tells when it begins to work on a case, and goes on when it may."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.asked: list[str] = []
        self.begun: dict[str, Event] = {}
        self.may_go_on = Event()
        self.may_go_on.set()

    def observe(self, case: Case, **options: Any) -> Observation:
        self.asked.append(case.id)
        self.begun.setdefault(case.id, Event()).set()
        assert self.may_go_on.wait(LONG_S)
        return super().observe(case, **options)


@pytest.fixture(scope="module")
def live(warm_python: Path) -> Iterator[Gated]:
    with Gated(STAND_IN, CHECKPOINT, python=warm_python, time_limit_s=LONG_S) as reference:
        yield reference


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    folder = tmp_path_factory.mktemp("pages")
    return [make_case(write_page(name, folder), "markdown", "tiny", TOKENS) for name in ("square", "tiny", "portrait")]


@pytest.fixture
def reference(live: Gated, cases: list[Case], tmp_path: Path) -> Iterator[KeptReference]:
    live.asked.clear()
    live.begun = {case.id: Event() for case in cases}
    kept = KeptReference(live, Store(tmp_path / "answers", {}), lambda note: None)
    kept.expect(cases)
    yield kept
    assert kept.live is live, "it has nothing left to do"


def test_the_next_case_is_worked_on_while_nobody_waits(
    reference: KeptReference, live: Gated, cases: list[Case]
) -> None:
    first, second, third = cases
    assert live.begun[first.id].wait(LONG_S)
    assert not live.begun[second.id].is_set()
    reference.observe(first)
    assert live.begun[second.id].wait(LONG_S)
    assert not live.begun[third.id].is_set()
    ahead = reference.observe(second)
    same(pack(reference.observe(third)), pack(live.observe(third)))
    same(pack(ahead), pack(live.observe(second)))
    assert live.asked == [*(case.id for case in cases), third.id, second.id], "each was asked once"


def test_how_answers_are_made_is_told_meanwhile(reference: KeptReference, live: Gated, cases: list[Case]) -> None:
    first, second, _ = cases
    reference.expect([])
    reference.observe(first)
    reference.expect(cases)
    live.may_go_on.clear()
    try:
        reference.observe(first)
        assert live.begun[second.id].wait(LONG_S)
        assert reference.provenance.checkpoint == CHECKPOINT
    finally:
        live.may_go_on.set()


def test_what_is_kept_is_not_begun(reference: KeptReference, live: Gated, cases: list[Case]) -> None:
    for _ in range(2):
        for case in cases:
            reference.observe(case)
    assert live.asked == [case.id for case in cases]


def test_another_case_than_expected_is_answered(reference: KeptReference, live: Gated, cases: list[Case]) -> None:
    first, second, third = cases
    reference.observe(first)
    assert reference.observe(third).case_id == third.id
    assert reference.observe(second).case_id == second.id
    assert [live.asked[0], live.asked[2]] == [first.id, third.id]


def test_a_page_that_cannot_be_read_is_told_when_it_is_asked_about(
    reference: KeptReference, cases: list[Case], tmp_path: Path
) -> None:
    (broken := tmp_path / "broken.png").write_bytes(b"no picture")
    bad = make_case(broken, "markdown", "tiny", TOKENS)
    reference.expect([cases[0], bad])
    reference.observe(cases[0])
    with pytest.raises(PageFaultError):
        reference.observe(bad)


def test_an_error_is_raised_where_its_answer_is_asked_for(cases: list[Case], tmp_path: Path) -> None:
    scene = LOADED + "say('Failure', id=id, kind='ValueError', message='not this one', traceback='at line 1')\nhear()"
    with played(tmp_path, scene) as worker:
        worker.reference.start()
        ahead = Ahead(worker.reference)
        ahead.begin(cases[0])
        assert ahead.live is worker.reference
        with pytest.raises(ReferenceFaultError, match="not this one"):
            ahead.observe(cases[0])


def test_one_that_is_at_work_is_ended(cases: list[Case], tmp_path: Path) -> None:
    with played(tmp_path, LOADED + "hang()", time_limit_s=600) as worker:
        worker.reference.start()
        ahead = Ahead(worker.reference)
        ahead.begin(cases[0])
        await_((tmp_path / "stalled").exists)
        ahead.close()
        assert len(worker.pids) == 1, "no other is started in its place"
