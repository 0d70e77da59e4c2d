"""A live reference is not asked the same thing twice."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.families import DEFAULT
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.observation.packing import pack
from pytest_dsocr.observation.provenance import Key
from pytest_dsocr.reference.answers import KeptReference, Store, making_of
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.recorded_case import RecordedCase
from suites.contract.pages import write_page
from tests.compare.made import every_bit, observation
from tests.recordings import FILES
from tests.reference.conftest import STAND_IN, copy_stand_in
from tests.report.made import MADE

CHECKPOINT = "synthetic:tiny"
KEY = Key(CHECKPOINT, "cpu", "float32", "eager", "a" * 64)


class Counted(LiveReference):
    """Counts what it is asked."""

    asked = 0

    def observe(self, case: Case, **options: Any) -> Observation:
        self.asked += 1
        return super().observe(case, **options)


@dataclass
class Runs:
    """Runs one after another, each with a reference of its own over one worker and one folder."""

    live: Counted
    root: Path
    making: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)

    def ask(self, case: Case, *, fresh: bool = False) -> tuple[Observation, bool]:
        """Return the answer of another run, and whether the live reference was asked for it."""
        before = self.live.asked
        reference = KeptReference(self.live, self.store(), self.notes.append, fresh=fresh)
        return reference.observe(case), self.live.asked > before

    def store(self) -> Store:
        return Store(self.root, self.making)


@pytest.fixture(scope="module")
def live(warm_python: Path) -> Iterator[Counted]:
    with Counted(STAND_IN, CHECKPOINT, python=warm_python, time_limit_s=60) as reference:
        yield reference


@pytest.fixture
def runs(live: Counted, tmp_path: Path) -> Runs:
    return Runs(live, tmp_path / "answers", making_of(STAND_IN, KEY, live.versions()))


def test_the_second_run_does_not_ask_and_has_the_same_answer_whole(runs: Runs, case: Case, tmp_path: Path) -> None:
    first, was_asked = runs.ask(case)
    assert was_asked
    assert runs.notes == []
    with LiveReference(STAND_IN, CHECKPOINT, python=tmp_path / "none") as unstarted:
        again = KeptReference(unstarted, runs.store(), runs.notes.append)
        second, made = again.observe(case), again.provenance
    assert every_bit(pack(second)) == every_bit(pack(first))
    assert any(name.startswith("values/") for name in pack(second)[1])
    assert made == runs.live.provenance
    assert second.provenance == first.provenance
    assert [str(runs.root) in note and "--dsocr-fresh" in note for note in runs.notes] == [True]


def test_only_the_same_question_is_not_asked_again(runs: Runs, case: Case, tmp_path: Path) -> None:
    runs.ask(case)
    renamed = replace(case, page=tmp_path / "renamed.png")
    renamed.page.write_bytes(case.page.read_bytes())
    answer, was_asked = runs.ask(renamed)
    assert (answer.case_id, was_asked) == (renamed.id, False), "a page counts by its pixels"
    other_page = write_page("tiny", tmp_path)
    for other in (
        Case(other_page, case.prompt, case.preset, case.max_new_tokens),
        Case(case.page, "<image>Read.", case.preset, case.max_new_tokens),
        Case(case.page, case.prompt, DEFAULT.preset("small"), case.max_new_tokens),
    ):
        assert runs.store().find(other) is None
    before = runs.store().path(case).stat().st_mtime_ns
    assert runs.ask(case, fresh=True)[1]
    assert runs.store().path(case).stat().st_mtime_ns > before


def test_answers_belong_to_a_making(live: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The vendor's files, the weights, how they are run, versions, and the code of our own that they go through."""
    making, copy = making_of(STAND_IN, KEY, live.versions()), copy_stand_in(tmp_path)
    assert making == making_of(copy, KEY, live.versions())
    assert {Path(name).parts[0] for name in making["own"]} == {"contract", "engine", "observation", "reference"}
    with (copy / FILES[-1]).open("a") as file:
        file.write("# \n")
    others = [
        making_of(copy, KEY, live.versions()),
        making_of(STAND_IN, KEY, {"torch": "0"}),
        making_of(STAND_IN, replace(KEY, checkpoint_sha256="b" * 64), live.versions()),
        making_of(STAND_IN, replace(KEY, attention="flash_attention_2"), live.versions()),
    ]
    monkeypatch.setattr("pytest_dsocr.reference.answers.OWN", tmp_path)
    (tmp_path / "engine" / "inner").mkdir(parents=True)
    for code in ("1\n", "2\n"):
        (tmp_path / "engine" / "inner" / "code.py").write_text(code)
        others.append(making_of(STAND_IN, KEY, live.versions()))
    assert len({Store(tmp_path, one).folder for one in (making, *others)}) == 7


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_damaged_answer_is_reported_and_asked_anew(suffix: str, runs: Runs, case: Case) -> None:
    whole, _ = runs.ask(case)
    harmed = runs.store().path(case).with_suffix(suffix)
    data = harmed.read_bytes()
    harmed.write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    answer, was_asked = runs.ask(case)
    assert was_asked
    assert every_bit(pack(answer)) == every_bit(pack(whole))
    [note] = runs.notes
    assert "damaged, and asked anew" in note
    assert str(harmed.parent) in note
    assert not runs.ask(case)[1]


def test_what_was_used_longest_ago_makes_room(tmp_path: Path, case: Case) -> None:
    cases = [replace(case, max_new_tokens=tokens) for tokens in (1, 2, 3)]
    store = Store(tmp_path, {}, most_bytes=0)
    for k, one in enumerate(cases[:2]):
        store.add(one, RecordedCase(one.to_json(), MADE, observation(keep_values=True)))
        os.utime(store.path(one), (k, k))
    assert [store.find(one) is not None for one in cases] == [False, True, False], "the newest stays"
    assert len([*store.folder.iterdir()]) == 2, "its tensors go with an answer"
    room = replace(store, most_bytes=int(2.5 * sum(path.stat().st_size for path in store.folder.iterdir())))
    room.add(cases[0], RecordedCase(cases[0].to_json(), MADE, observation(keep_values=True)))
    os.utime(room.path(cases[0]), (1, 1))
    os.utime(room.path(cases[1]), (2, 2))
    room.find(cases[0])  # and so the second is the one that was used longest ago
    room.add(cases[2], RecordedCase(cases[2].to_json(), MADE, observation(keep_values=True)))
    assert [store.find(one) is not None for one in cases] == [True, False, True]


def test_a_disk_that_takes_nothing_costs_no_answer(runs: Runs, case: Case) -> None:
    runs.root.write_text("no folder")
    assert runs.ask(case)[1]
    assert runs.notes[-1].startswith("the live reference's answers are not kept: ")
