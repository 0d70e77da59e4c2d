"""What a live reference was asked before is not asked again, and it works on the next case while nobody waits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.files import seal, unseal
from pytest_dsocr.observation.case import Case, PageFaultError, make_case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.observation.packing import pack
from pytest_dsocr.observation.provenance import Key
from pytest_dsocr.reference.answers import Ahead, KeptReference, Store, making_of
from pytest_dsocr.reference.environment import FILES
from pytest_dsocr.reference.live import LiveReference
from pytest_dsocr.reference.protocol import ReferenceFaultError
from pytest_dsocr.reference.recorded_case import RecordedCase
from suites.contract.pages import write_page
from tests.compare.made import observation
from tests.processes import await_, await_ended
from tests.reference.conftest import STAND_IN, copy_stand_in
from tests.reference.replay import same
from tests.reference.test_live import asked, misbehaving
from tests.report.made import MADE

CHECKPOINT, TOKENS = "synthetic:tiny", 3
KEY = Key(CHECKPOINT, "cpu", "float32", "eager", "a" * 64)


class Gated(LiveReference):
    """Tells when it begins to work on a case."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.asked: list[str] = []
        self.begun: dict[str, Event] = {}

    def observe(self, case: Case, **options: Any) -> Observation:
        self.asked.append(case.id)
        self.begun.setdefault(case.id, Event()).set()
        return super().observe(case, **options)


@dataclass
class Runs:
    """Runs one after another, each with a reference of its own over one worker and one folder."""

    live: Gated
    root: Path
    making: Mapping[str, Any]
    notes: list[str] = field(default_factory=list)

    def ask(self, case: Case, *, most_bytes: int = 2**30, fresh: bool = False) -> tuple[Observation, bool]:
        """Give the answer of another run, and whether the live reference was asked for it."""
        before = len(self.live.asked)
        reference = KeptReference(self.live, self.store(most_bytes), self.notes.append, fresh=fresh)
        return reference.observe(case), len(self.live.asked) > before

    def store(self, most_bytes: int = 2**30) -> Store:
        return Store(self.root, self.making, most_bytes)


@pytest.fixture(scope="module")
def live(warm_python: Path) -> Iterator[Gated]:
    with Gated(STAND_IN, CHECKPOINT, python=warm_python, time_limit_s=60) as reference:
        yield reference


@pytest.fixture
def runs(live: Gated, tmp_path: Path) -> Runs:
    return Runs(live, tmp_path / "answers", making_of(STAND_IN, KEY, live.versions()))


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(write_page("square", tmp_path_factory.mktemp("pages")), "markdown", "tiny", TOKENS)


def test_the_second_run_does_not_ask_and_has_the_same_answer_whole(runs: Runs, case: Case, tmp_path: Path) -> None:
    first, was_asked = runs.ask(case)
    assert was_asked
    assert runs.notes == []
    with LiveReference(STAND_IN, CHECKPOINT, python=tmp_path / "none") as unstarted:
        again = KeptReference(unstarted, runs.store(), runs.notes.append)
        second, made = again.observe(case), again.provenance
    same(pack(second), pack(first))
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
    write_page("tiny", tmp_path).rename(renamed.page)
    others: list[dict[str, Any]] = [
        {"page": renamed.page},
        {"prompt": "<image>Read."},
        {"preset": DEFAULT.preset("small")},
    ]
    assert [runs.ask(Case(**{**fields_of(case), **other}))[1] for other in others] == [True] * 3
    before = runs.store().path(case).stat().st_mtime_ns
    assert runs.ask(case, fresh=True)[1]
    assert runs.store().path(case).stat().st_mtime_ns > before
    making = runs.making
    assert making == making_of(copy_stand_in(tmp_path), KEY, runs.live.versions())
    with (tmp_path / "vendor" / FILES[-1]).open("a") as file:
        file.write("# \n")
    for other_making in (
        making_of(tmp_path / "vendor", KEY, runs.live.versions()),
        making_of(STAND_IN, KEY, {"torch": "0"}),
        making_of(STAND_IN, replace(KEY, checkpoint_sha256="b" * 64), runs.live.versions()),
        making_of(STAND_IN, replace(KEY, attention="flash_attention_2"), runs.live.versions()),
    ):
        assert Store(runs.root, other_making).find(case) is None


def fields_of(case: Case) -> dict[str, Any]:
    return {"page": case.page, "prompt": case.prompt, "preset": case.preset, "max_new_tokens": case.max_new_tokens}


@pytest.mark.parametrize("harm", ["a byte", "a byte of the tensors", "tensors gone", "another case's"])
def test_a_damaged_answer_is_told_and_asked_anew(harm: str, runs: Runs, case: Case) -> None:
    whole, _ = runs.ask(case)
    path = runs.store().path(case)
    tensors = path.with_suffix(".safetensors")
    if harm == "another case's":
        other = replace(case, max_new_tokens=1)
        runs.ask(other)
        for suffix in (".json", ".safetensors"):
            runs.store().path(other).with_suffix(suffix).rename(path.with_suffix(suffix))
    elif harm == "tensors gone":
        tensors.unlink()
    else:
        harmed = tensors if harm == "a byte of the tensors" else path
        data = harmed.read_bytes()
        harmed.write_bytes(data[:700] + bytes([data[700] ^ 1]) + data[701:])
    answer, was_asked = runs.ask(case)
    assert was_asked
    same(pack(answer), pack(whole))
    [note] = runs.notes
    assert "damaged, and asked anew" in note
    assert str(path.parent) in note
    assert not runs.ask(case)[1]


def test_what_was_used_longest_ago_makes_room(tmp_path: Path, case: Case) -> None:
    cases = [replace(case, max_new_tokens=tokens) for tokens in (1, 2, 3)]
    store = Store(tmp_path, {}, most_bytes=0)
    for one in cases[:2]:
        store.add(one, RecordedCase(one.to_json(), MADE, observation(keep_values=True)))
    assert [store.find(one) is not None for one in cases] == [False, True, False], "the newest stays"
    assert len([*store.folder.iterdir()]) == 2, "its tensors go with an answer"
    room = replace(store, most_bytes=int(2.5 * sum(path.stat().st_size for path in store.folder.iterdir())))
    room.add(cases[0], RecordedCase(cases[0].to_json(), MADE, observation(keep_values=True)))
    os.utime(room.path(cases[0]), (1, 1))
    room.find(cases[0])  # and so the second is the one that was used longest ago
    room.add(cases[2], RecordedCase(cases[2].to_json(), MADE, observation(keep_values=True)))
    assert [store.find(one) is not None for one in cases] == [True, False, True]


def test_our_own_code_that_answers_go_through_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {Path(name).parts[0] for name in making_of(STAND_IN, KEY, {})["own"]} == {
        *("contract", "engine", "observation", "reference")
    }
    monkeypatch.setattr("pytest_dsocr.reference.answers.OWN", tmp_path)
    (tmp_path / "engine" / "inner").mkdir(parents=True)
    (tmp_path / "engine" / "inner" / "code.py").write_text("1\n")
    before = making_of(STAND_IN, KEY, {})
    (tmp_path / "engine" / "inner" / "code.py").write_text("2\n")
    assert making_of(STAND_IN, KEY, {}) != before


def test_answers_made_in_two_ways_are_not_mixed(runs: Runs, case: Case) -> None:
    runs.ask(case)
    path = runs.store().path(case)
    content = {name: value for name, value in unseal(path.read_bytes()).items() if name != "sha256"}
    content["origin"] = {**content["origin"], "dtype": "bfloat16"}
    path.write_bytes(seal(json.loads(json.dumps(content))))
    with pytest.raises(ReferenceFaultError, match=r"otherwise than it answers now \(dtype: bfloat16 and float32\);"):
        runs.ask(replace(case, max_new_tokens=2))
    assert not runs.store().folder.exists()
    runs.root.rmdir()
    runs.root.write_text("a disk that takes nothing costs no answer")
    assert runs.ask(case)[1]
    assert runs.notes[-1].startswith("the live reference's answers are not kept: ")


# Asked one case ahead.


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    folder = tmp_path_factory.mktemp("pages")
    return [make_case(write_page(name, folder), "markdown", "tiny", 3) for name in ("square", "tiny", "portrait")]


@pytest.fixture
def reference(live: Gated, cases: list[Case], tmp_path: Path) -> Iterator[KeptReference]:
    live.asked.clear()
    live.begun = {case.id: Event() for case in cases}
    kept = KeptReference(live, Store(tmp_path / "answers", {}), lambda note: None)
    kept.expect(cases)
    yield kept
    assert kept.live is live, "it has nothing left to do"


def test_the_next_case_is_worked_on_while_nobody_waits(
    reference: KeptReference, live: Gated, cases: list[Case], tmp_path: Path
) -> None:
    first, second, third = cases
    assert live.begun[first.id].wait(60)
    assert not live.begun[second.id].is_set()
    reference.observe(first)
    assert live.begun[second.id].wait(60)
    assert not live.begun[third.id].is_set()
    assert reference.provenance.checkpoint == CHECKPOINT
    (broken := tmp_path / "broken.png").write_bytes(b"no picture")
    bad = make_case(broken, "markdown", "tiny", 3)
    assert reference.observe(third).case_id == third.id, "another case than was expected is answered"
    same(pack(reference.observe(second)), pack(live.observe(second)))
    assert live.asked[:2] == [first.id, second.id]
    reference.expect([second, bad])
    reference.observe(second)
    with pytest.raises(PageFaultError):
        reference.observe(bad)


def test_an_error_is_raised_where_its_answer_is_asked_for_and_one_at_work_is_ended(
    warm_python: Path, tmp_path: Path
) -> None:
    with misbehaving(warm_python) as live:
        live.start()
        ahead, broken, stuck = Ahead(live), asked("memory"), asked(f"deaf@{tmp_path}/begun")
        ahead.begin(broken)
        assert ahead.live is live
        with pytest.raises(ReferenceFaultError, match="MemoryError"):
            ahead.observe(broken)
        pid = live.worker_pid
        ahead.begin(stuck)
        await_((tmp_path / "begun").exists)
        ahead.close()
        assert pid
        await_ended(pid)
        assert live.worker_pid is None, "no other is started in its place"
