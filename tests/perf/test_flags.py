"""Needless work is named by its own sign, and by no other."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import suites
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine import cache
from pytest_dsocr.engine.session import Session
from pytest_dsocr.perf.flags import FLAGS, flag, flags
from pytest_dsocr.perf.probe.instrumentation import instrumentation
from pytest_dsocr.perf.probe.lines import growth
from pytest_dsocr.perf.probe.page import PageProbe
from pytest_dsocr.plugin.perf_run import WATCHED_PAGES, watching_costs
from pytest_dsocr.subjects.session import SessionSubject
from tests.perf import planted

SMALL = Preset("small view", 128, 128, crop=False)
TOKENS = 24
"""The fewest show what grows: eight at each end, and some between."""
TIMED_TOKENS = 34
MANY_PAGES = (2, 4, 12)
COUNTS = Path(suites.__file__).parent / "perf" / "test_counts.py"

Probe = Callable[..., PageProbe]


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    Image.new("RGB", (64, 48), "white").save(path)
    return path


@pytest.fixture
def probe(tiny: Session[Any], page: Path) -> Probe:
    def make(subject: Callable[[Session[Any]], SessionSubject], tokens: int = TOKENS) -> PageProbe:
        return PageProbe(subject(tiny), page, prompt="<image>\nFree OCR.", preset=SMALL, max_new_tokens=tokens)

    return make


def raised(probe: PageProbe) -> dict[str, str]:
    """What each flag says that is raised; all of them have to be told."""
    found = flags(probe.exact())
    assert [*found] == [*FLAGS]
    return {name: one.measured for name, one in found.items() if one.raised}


@pytest.mark.parametrize(
    ("subject", "name", "measured"),
    [
        (planted.VisionInDecode, "vision in decode", "5 convolutions in a decode step; none is allowed, "),
        (planted.VisionTwice, "vision runs again", "reading the page encodes 2 views, and it has 1"),
        (planted.WaitsInStep, "waits in a step", "a decode step waits for the device 1 times by itself "),
        (planted.WaitsInRead, "waits a token", "reading waits for the device 1.92 times a token; 1 is allowed, "),
        (planted.CacheConcatenated, "cache copied", "each step stores 1,632 bytes more than the one before, and "),
        (planted.NgramSearch, "host work grows", "each token runs 2 lines of Python more than the one before; "),
    ],
)
def test_a_planted_cost_raises_its_own_flag_alone(
    probe: Probe, subject: type[SessionSubject], name: str, measured: str
) -> None:
    [(found, told)] = raised(probe(subject)).items()
    assert found == name
    assert told.startswith(measured)


@pytest.mark.parametrize("subject", [SessionSubject, planted.StepByStep, planted.CostlyRanges])
def test_without_needless_work_none_is_raised(probe: Probe, subject: type[SessionSubject]) -> None:
    assert raised(probe(subject)) == {}


def test_a_cache_that_doubles_its_room_in_the_last_step_is_not_copied(
    probe: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = probe(SessionSubject)
    last_length = made.exact()["tokens.prompt"] + TOKENS - 1
    monkeypatch.setattr(cache, "INITIAL_CAPACITY", last_length - 1)
    exact = made.exact()
    assert exact["decode.bytes"] > last_length * exact["cache.bytes_a_token"]
    assert exact["decode.bytes.growth"] < exact["cache.bytes_a_token"]


def watched(probe: PageProbe) -> Comparison:
    """Take more pages than a run does, for other work on the machine spreads the times."""
    found = watching_costs(lambda pages: instrumentation(probe, pages), MANY_PAGES)
    assert found is not None
    return found


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock by which each look takes a millisecond, and nothing else takes time."""
    ticks = itertools.count(0, 10**6)
    monkeypatch.setattr("time.perf_counter_ns", lambda: next(ticks))


@pytest.mark.usefixtures("ticking")
def test_ranges_that_cost_are_found(probe: Probe) -> None:
    found = watched(probe(planted.CostlyRanges, TIMED_TOKENS))
    assert (found.what, found.verdict) == ("perf/watching", Verdict.WRONG)
    assert found.measured.startswith("SLOWER: +")
    assert "allowed +1.0%" in found.measured


@pytest.mark.usefixtures("ticking")
def test_the_sessions_ranges_are_not_called_costly(probe: Probe) -> None:
    assert watched(probe(SessionSubject, TIMED_TOKENS)).verdict is not Verdict.WRONG


def test_more_pages_are_read_only_while_it_is_open() -> None:
    asked: list[int] = []
    rng = random.Random(1)

    def steps_of(pages: int, noise: float = 0.001) -> tuple[list[float], list[float]]:
        asked.append(pages)
        times = [10 * (1 + noise * rng.random()) for _ in range(20 * pages)]
        return times[::2], times[1::2]

    assert str(watching_costs(steps_of)).count("SAME") == 1
    assert asked == [WATCHED_PAGES[0]]
    found = watching_costs(lambda pages: steps_of(pages, 0.3))
    assert found is not None
    assert found.verdict is Verdict.NOT_COMPARED
    assert asked == [WATCHED_PAGES[0], *WATCHED_PAGES]
    assert watching_costs(lambda _: None) is None


def test_the_suite_names_the_sign(pytester: pytest.Pytester, page: Path) -> None:
    result = pytester.runpytest_inprocess(
        f"{COUNTS}::test_no_red_flag",
        "--dsocr-checkpoint=synthetic:tiny",
        "--dsocr-subject=tests.perf.planted:vision_in_decode",
        "--dsocr-reference=session",
        f"--dsocr-pages={page}",
        "--dsocr-presets=tiny",
        f"--dsocr-max-new-tokens={TOKENS}",
    )
    result.assert_outcomes(passed=len(FLAGS) - 1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_no_red_flag?vision in decode?*",
            "perf/vision in decode: 5 convolutions in a decode step; none is allowed, since only vision has any",
            "WRONG *perf/vision in decode",
        ]
    )


BYTES = {"cache.bytes_a_token": 100}
THRESHOLDS: dict[str, tuple[dict[str, int], dict[str, int]]] = {
    "vision in decode": ({"decode.convolutions": 0}, {"decode.convolutions": 1}),
    "vision runs again": ({"vision.views": 7, "page.views": 7}, {"vision.views": 7, "page.views": 8}),
    "waits in a step": ({"decode.waits": 0}, {"decode.waits": 1}),
    "waits a token": (
        {"page.waits": 14, "page.waits.first": 4, "tokens.output": 10},
        {"page.waits": 15, "page.waits.first": 4, "tokens.output": 10},
    ),
    "cache copied": ({"decode.bytes.growth": 99} | BYTES, {"decode.bytes.growth": 100} | BYTES),
    "operators grow": (
        {"decode.operators.growth": 0, "decode.operators": 9},
        {"decode.operators.growth": 1, "decode.operators": 9},
    ),
    "host work grows": ({"page.lines.growth": 0}, {"page.lines.growth": 1}),
}
"""By flag, what is allowed to the last, and the least that is not."""


@pytest.mark.parametrize("name", FLAGS)
def test_a_flag_is_raised_above_its_limit(name: str) -> None:
    allowed, above = THRESHOLDS[name]
    assert {name: found.raised for name, found in flags(allowed).items()} == {name: False}
    assert {name: found.raised for name, found in flags(above).items()} == {name: True}


@pytest.mark.parametrize(("name", "missing"), [(name, one) for name, (needs, _) in FLAGS.items() for one in needs])
def test_without_a_quantity_a_flag_is_not_told(name: str, missing: str) -> None:
    _, above = THRESHOLDS[name]
    assert flag(name, {one: value for one, value in above.items() if one != missing}) is None


def test_less_than_before_raises_nothing() -> None:
    fewer = {"decode.operators.growth": -3, "decode.operators": 9, "page.lines.growth": -2, "decode.bytes.growth": -8}
    assert not any(found.raised for found in flags(fewer | BYTES).values())


@pytest.mark.parametrize(
    ("values", "grown"),
    [
        ([5, 5], 0),
        ([5, 8], 3),
        ([*range(0, 60, 3)], 3),
        ([7] * 20 + [5000], 0),
        ([5000] + [7] * 20, 0),
        ([*range(60, 0, -3)], -3),
    ],
)
def test_growth_is_a_tokens_and_one_that_stands_out_is_none(values: list[int], grown: int) -> None:
    assert growth(values) == grown
