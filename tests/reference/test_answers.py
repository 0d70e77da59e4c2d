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
from PIL import Image

import pytest_dsocr
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
from tests.reference.conftest import STAND_IN
from tests.reference.replay import same
from tests.reference.test_live import asked, misbehaving
from tests.report.made import MADE

PACKAGE = Path(pytest_dsocr.__file__).parent
CHECKPOINT, TOKENS = "synthetic:tiny", 3
KEY = Key(CHECKPOINT, "cpu", "float32", "eager", "a" * 64)


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
        assert self.may_go_on.wait(60)
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


def test_a_page_counts_by_its_pixels(runs: Runs, case: Case, tmp_path: Path) -> None:
    runs.ask(case)
    renamed = replace(case, page=tmp_path / "renamed.png")
    renamed.page.write_bytes(case.page.read_bytes())
    answer, was_asked = runs.ask(renamed)
    assert (answer.case_id, was_asked) == (renamed.id, False)
    with Image.open(case.page) as page:
        changed = page.convert("RGB")
    changed.putpixel((0, 0), (1, 2, 3))
    changed.save(renamed.page)
    assert runs.ask(replace(renamed))[1]


@pytest.mark.parametrize(
    "changed", [{"prompt": "<image>Read."}, {"max_new_tokens": 2}, {"preset": DEFAULT.preset("small")}]
)
def test_another_question_is_asked(changed: dict[str, Any], runs: Runs, case: Case) -> None:
    runs.ask(case)
    assert runs.ask(replace(case, **changed))[1]


def test_another_making_has_answers_of_its_own(runs: Runs, case: Case, tmp_path: Path) -> None:
    runs.ask(case)
    vendor = tmp_path / "vendor"
    vendor.mkdir()
    for name in FILES:
        (vendor / name).write_bytes((STAND_IN / name).read_bytes())
    versions = dict(runs.live.versions())
    assert making_of(vendor, KEY, versions) == runs.making
    (vendor / FILES[-1]).write_bytes((STAND_IN / FILES[-1]).read_bytes() + b"# \n")
    others = [
        making_of(vendor, KEY, versions),
        making_of(STAND_IN, KEY, {**versions, "torch": "0"}),
        *(making_of(STAND_IN, key, versions) for key in (replace(KEY, dtype="bfloat16"), replace(KEY, device="h200"))),
        making_of(STAND_IN, replace(KEY, checkpoint_sha256="b" * 64), versions),
        making_of(STAND_IN, replace(KEY, attention="flash_attention_2"), versions),
    ]
    assert runs.store().find(case) is not None
    assert [Store(runs.root, other).find(case) for other in others] == [None] * len(others)


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
@pytest.mark.parametrize("harm", ["a byte", "cut", "gone"])
def test_a_damaged_answer_is_told_and_asked_anew(suffix: str, harm: str, runs: Runs, case: Case) -> None:
    whole, _ = runs.ask(case)
    path = runs.store().path(case).with_suffix(suffix)
    data = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-9] if harm == "cut" else data[:700] + bytes([data[700] ^ 1]) + data[701:])
    answer, was_asked = runs.ask(case)
    assert was_asked
    same(pack(answer), pack(whole))
    is_plainly_absent = (suffix, harm) == (".json", "gone")
    assert ["damaged, and asked anew" in note for note in runs.notes] == [True] * (not is_plainly_absent)
    assert all(str(path.parent) in note for note in runs.notes)
    assert not runs.ask(case)[1]


def test_fresh_asks_and_keeps_what_was_answered(runs: Runs, case: Case) -> None:
    runs.ask(case)
    kept = runs.store().path(case)
    before = kept.stat().st_mtime_ns
    assert runs.ask(case, fresh=True)[1]
    assert kept.stat().st_mtime_ns > before
    assert not runs.ask(case)[1]


def test_what_was_used_longest_ago_makes_room(runs: Runs, case: Case) -> None:
    cases = [replace(case, max_new_tokens=tokens) for tokens in (1, 2, 3)]
    runs.ask(cases[0])
    size = sum(path.stat().st_size for path in runs.root.rglob("*.*"))
    runs.ask(cases[1])
    assert not runs.ask(cases[0])[1]  # and so the second is the one that was used longest ago
    runs.ask(cases[2], most_bytes=int(2.5 * size))
    assert [runs.store().find(one) is not None for one in cases] == [True, False, True]


def test_answers_made_in_two_ways_are_not_mixed(runs: Runs, case: Case) -> None:
    runs.ask(case)
    path = runs.store().path(case)
    content = {name: value for name, value in unseal(path.read_bytes()).items() if name != "sha256"}
    content["origin"] = {**content["origin"], "dtype": "bfloat16"}
    path.write_bytes(seal(json.loads(json.dumps(content))))
    with pytest.raises(ReferenceFaultError, match=r"otherwise than it answers now \(dtype: bfloat16 and float32\);"):
        runs.ask(replace(case, max_new_tokens=2))
    assert not runs.store().folder.exists()
    assert runs.ask(case)[1]


def test_a_disk_that_takes_nothing_costs_no_answer(runs: Runs, case: Case) -> None:
    runs.root.write_text("a file")
    assert runs.ask(case)[1]
    assert [note.startswith("the live reference's answers are not kept: ") for note in runs.notes] == [True]


def test_what_is_never_kept_is_asked_of_the_live_reference(live: Gated, case: Case, tmp_path: Path) -> None:
    notes: list[str] = []
    reference = KeptReference(live, Store(tmp_path, {}), notes.append)
    assert reference.start() == reference.provenance == live.provenance
    assert reference.inputs(case).prompt_ids == live.inputs(case).prompt_ids != []
    assert reference.flops(case) == live.flops(case) != {}
    assert {len(times) for times in reference.stage_times(case, 2).values()} == {2}
    with Gated(STAND_IN, CHECKPOINT, python=tmp_path / "none") as unstarted:
        KeptReference(unstarted, Store(tmp_path, {}), notes.append).close()
        assert unstarted.worker_pid is None


# The store alone, with answers made up.


def kept(store: Store, case: Case, *, at: int = 0) -> Path:
    """Keep an answer that was used at a second; the path of its summary."""
    store.add(case, RecordedCase(case.to_json(), MADE, observation(keep_values=True)))
    os.utime(store.path(case), (at, at))
    return store.path(case)


def test_the_newest_answer_stays_whatever_room_there_is(tmp_path: Path, case: Case) -> None:
    first, second = (replace(case, max_new_tokens=tokens) for tokens in (1, 2))
    store = Store(tmp_path, {}, most_bytes=0)
    kept(store, first)
    assert store.find(first) is not None
    kept(store, second)
    assert (store.find(first), store.find(second) is not None) == (None, True)
    assert len([*store.folder.iterdir()]) == 2, "its tensors go with an answer"


def test_an_answer_in_another_cases_place_is_damage(tmp_path: Path, case: Case) -> None:
    store, other = Store(tmp_path, {}), replace(case, max_new_tokens=1)
    path = kept(store, other)
    for suffix in (".json", ".safetensors"):
        path.with_suffix(suffix).rename(store.path(case).with_suffix(suffix))
    with pytest.raises(ReferenceFaultError, match="holds another case"):
        store.find(case)


def test_how_answers_were_made_is_read_of_the_first_that_is_whole(tmp_path: Path, case: Case) -> None:
    store = Store(tmp_path, {})
    assert store.origin() is None
    paths = sorted(kept(store, replace(case, max_new_tokens=tokens)) for tokens in (1, 2))
    assert all(path.exists() for path in paths), "there is room for both"
    paths[0].write_text("{}")
    assert store.origin() == MADE
    paths[1].write_text("no JSON")
    assert store.origin() is None


@pytest.mark.parametrize(
    ("room", "counts"),
    [*((room, True) for room in ("contract", "engine", "observation", "reference")), ("report", False)],
)
def test_our_own_code_that_answers_go_through_counts(
    room: str, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (PACKAGE / room).is_dir()
    monkeypatch.setattr("pytest_dsocr.reference.answers.OWN", tmp_path)
    (tmp_path / room / "inner").mkdir(parents=True)
    before = making_of(STAND_IN, KEY, {})
    (tmp_path / room / "inner" / "code.py").write_text("1\n")
    (tmp_path / room / "notes.txt").write_text("1\n")
    after = making_of(STAND_IN, KEY, {})
    assert (after != before) is counts
    assert [*after["own"]] == [f"{room}/inner/code.py"] * counts


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
    reference: KeptReference, live: Gated, cases: list[Case]
) -> None:
    first, second, third = cases
    assert live.begun[first.id].wait(60)
    assert not live.begun[second.id].is_set()
    reference.observe(first)
    assert live.begun[second.id].wait(60)
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
        assert live.begun[second.id].wait(60)
        assert reference.provenance.checkpoint == CHECKPOINT
    finally:
        live.may_go_on.set()


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
    bad = make_case(broken, "markdown", "tiny", 3)
    reference.expect([cases[0], bad])
    reference.observe(cases[0])
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
