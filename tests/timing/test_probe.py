"""A round of several readings: the shortest of each lap, disturbed readings left out, stages kept apart."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.timing.pairs import one_pair
from pytest_dsocr.timing.probe import page as page_module
from pytest_dsocr.timing.probe.machine import Yardstick, descends, move_to
from pytest_dsocr.timing.probe.page import READINGS, PageProbe
from pytest_dsocr.timing.probe.stopwatch import Lap, Stopwatch, apart, in_quantities, shortest

FIT = {"load": 0.1}, list[str]()
SPOILT = {"load": 9.0}, ["the process waited for a core"]


class Reader:
    """Reads nothing; it is timed by what the test hands out."""

    def read(self, page: Path, **how: Any) -> str:
        return ""


@pytest.fixture
def probe() -> Iterator[PageProbe]:
    yield PageProbe(Reader(), Path("page.png"), prompt="", preset=DEEPSEEK_OCR.presets["tiny"], max_new_tokens=8)
    gc.unfreeze()


def handed_out(monkeypatch: pytest.MonkeyPatch, probe: PageProbe, *readings: tuple[float, float, Any]) -> None:
    """Have the probe read pages of these times, each with its host's."""
    rest = iter(readings)

    def reading(*_: object) -> Any:
        page_ms, host_ms, conditions = next(rest)
        return page_module._Reading({"page": [Lap(page_ms, host_ms)]}, *conditions)

    monkeypatch.setattr(probe, "_reading", reading)


@pytest.mark.parametrize("spoilt", [(), ((9.0, 1.0, SPOILT),)], ids=["fit", "one spoilt"])
def test_of_several_fit_readings_the_shortest_lap_counts(
    monkeypatch: pytest.MonkeyPatch, probe: PageProbe, spoilt: tuple[Any, ...]
) -> None:
    assert READINGS == 2
    handed_out(monkeypatch, probe, *spoilt, (15.0, 2.1, FIT), (12.0, 2.3, FIT))
    times = {"wall_ms": {"page": 12.0}, "host_ms": {"page": 2.3}}
    assert probe.round() == {**times, "conditions": {"load": 0.1}, "spoilt": []}


def test_a_round_is_spoilt_where_each_reading_is(monkeypatch: pytest.MonkeyPatch, probe: PageProbe) -> None:
    handed_out(monkeypatch, probe, *[(12.0, 2.0, SPOILT)] * 4)
    assert probe.round()["spoilt"] == ["the process waited for a core"]


def laps(**walls_ms: list[float]) -> dict[str, list[Lap]]:
    """Laps by name, of a host that takes 2 ms for its small work."""
    return {name: [Lap(one, 2.0) for one in times] for name, times in walls_ms.items()}


def walls(of: Mapping[str, Lap]) -> dict[str, float]:
    return {name: lap.wall_ms for name, lap in of.items()}


def test_each_step_is_compared_with_the_same_step() -> None:
    readings = [laps(decode=[4.0, 9.0, 6.0], page=[20.0]), laps(decode=[5.0, 5.0, 5.0], page=[15.0])]
    assert shortest(readings) == laps(decode=[4.0, 5.0, 5.0], page=[15.0])


def test_fusion_is_what_vision_takes_beside_its_encoders() -> None:
    timed = laps(tokenizer=[1.0], sam=[5.0, 7.0], clip=[3.0], projector=[1.0], vision=[18.0], prefill=[9.0])
    assert [*apart(timed)] == ["tokenizer", "sam", "clip", "projector", "vision_fusion", "prefill"]
    found = walls(in_quantities(apart(timed)))
    assert (found["sam"], found["vision_fusion"], found["first_token"]) == (12.0, 2.0, 28.0)
    assert apart(laps(vision=[18.0])) == laps(vision=[18.0]), "a subject that does not show its modules"
    assert walls(in_quantities(laps(tokenizer=[1.0], vision=[18.0], prefill=[9.0])))["first_token"] == 28.0


def test_a_stage_within_a_method_is_taken_out_of_it() -> None:
    encoders = laps(sam=[12.0], clip=[3.0], projector=[1.0])
    inner = laps(preprocess=[30.0, 10.0], tokenizer=[45.0], vision=[18.0], vision_fusion=[1.0], prefill=[9.0])
    found = walls(in_quantities(apart({**inner, **encoders})))
    expected = {"preprocess": 40.0, "tokenizer": 5.0, "vision_fusion": 3.0, "prefill": 8.0, "first_token": 72.0}
    assert {name: found[name] for name in expected} == expected
    assert [*found][:2] == ["preprocess", "tokenizer"]


def test_rounds_are_taken_in_turn_and_an_unsplit_tokenizer_is_compared_with_all_of_it() -> None:
    asked: list[Any] = []

    def side(**ms: float) -> Any:
        def ask(_: str, only: list[str], repeats: int) -> Any:
            asked.append(made)
            return {"wall_ms": {one: ms[one] for one in only if one in ms}, "spoilt": ()}

        made = SimpleNamespace(ask=ask)
        return made

    split = {"preprocess": 40.0, "tokenizer": 5.0}
    older, now, again = side(tokenizer=50.0), side(**split), side(**split)
    rounds = [one_pair((older, now), number, ["tokenizer"]) for number in range(4)]
    assert [[one.wall_ms for one in pair] for pair in rounds] == [[{"tokenizer": 50.0}, {"tokenizer": 45.0}]] * 4
    assert asked == [older, now, now, older] * 2
    assert [one.wall_ms for one in one_pair((now, again), 0, ["tokenizer"])] == [split, split]


def test_steps_are_split_early_and_late_where_there_are_enough() -> None:
    steps = [*map(float, range(1, 25))]
    found = walls(in_quantities(laps(decode=steps)))
    assert (found["decode"], found["decode.early"], found["decode.late"]) == (12.5, 4.5, 20.5)
    assert [*in_quantities(laps(decode=steps[:15]))] == ["decode"]


def test_a_lap_within_another_has_the_pace_around_that(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Yardstick("cpu").host_ms() > 0.05, "work that takes long enough"
    paces, yardstick = iter([2.0, 4.0, 6.0]), Yardstick("cpu")
    monkeypatch.setattr(yardstick, "host_ms", lambda: next(paces))
    watch = Stopwatch("cpu", yardstick=yardstick)
    with watch.lap("vision"), watch.lap("sam"):
        pass
    with watch.lap("prefill"):
        pass  # begins at once, with the pace that vision ended with
    assert {name: lap.host_ms for name, [lap] in watch.laps.items()} == {"sam": 3.0, "vision": 3.0, "prefill": 5.0}


def test_what_a_friend_started_is_no_stranger_on_the_gpu() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = [descends(child.pid, friends) for friends in ({os.getpid()}, {child.pid}, {2**22 + 1}, set())]
        assert found == [True, True, False, False]
        child.communicate(b"\n")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says and sets where a thread runs")
def test_cores_are_taken_in_turn_and_none_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed, taken = os.sched_getaffinity(0), list[set[int]]()
    move_to(1)
    assert os.sched_getaffinity(0) == allowed
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: taken.append(cores))
    for turn in range(3):
        move_to(turn)
    assert taken == [{3}, {3, 5}, {5}, {3, 5}, {3}, {3, 5}]
