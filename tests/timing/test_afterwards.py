"""Counting and tracing after the rounds: only what fits into the time is done, and the rest is named."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_dsocr.timing.afterwards import TRACED_PAGES, TRACING, Afterwards, reserve
from pytest_dsocr.timing.budget import LOADING, TimeBudget
from pytest_dsocr.timing.counts import PARTS
from tests.timing.test_pairs import Clock

TASK: Any = SimpleNamespace(traces=Path("traces"), subject="engine")
NAMES = [f"counting {part}" for part in PARTS]


def afterwards(clock: Clock, seconds: float, took_s: Callable[[str], float]) -> Afterwards:
    """Return the parts of two sides that count at the same time; ``took_s`` gives the seconds of each."""

    def ask(what: str, parts: Any = ("",), **how: Any) -> Any:
        clock.now_s += took_s(parts[0]) / 2
        return {"runs": {}, "rows": []} if what == "trace" else {parts[0]: 1}

    candidate = SimpleNamespace(subject=None, path=())
    side: Any = SimpleNamespace(ask=ask, label="A", candidate=candidate, process=SimpleNamespace(end=lambda: None))
    return Afterwards([side, side], TASK, TimeBudget(seconds, clock), lambda *_: None)


def test_without_a_limit_all_is_done() -> None:
    done = afterwards(Clock(), float("inf"), lambda part: 100)
    done.do(1.0, ())
    assert (done.left_out, [[*one] for one in done.exact]) == ([], [[*PARTS]] * 2)
    assert done.trace is not None


@pytest.mark.parametrize(("seconds", "left_out"), [(70, []), (24, [TRACING]), (11, [*NAMES[2:3], TRACING])])
def test_what_does_not_fit_is_left_out_and_named_and_the_rest_is_done(seconds: int, left_out: list[str]) -> None:
    clock = Clock()
    done = afterwards(clock, seconds, lambda part: PARTS.get(part, TRACED_PAGES) * 0.8)
    done.do(1.0, ())
    assert done.left_out == left_out
    assert clock.now_s <= seconds


def test_a_part_that_takes_longer_than_thought_makes_the_others_longer() -> None:
    clock = Clock()
    done = afterwards(clock, 20, lambda part: 3 * PARTS.get(part, TRACED_PAGES))
    done.do(1.0, ())
    assert done.left_out == [*NAMES[1:], TRACING]


def test_an_interrupt_ends_the_parts_and_keeps_what_is_known() -> None:
    def took_s(part: str) -> float:
        if part == "stages":
            raise KeyboardInterrupt
        return 1

    done = afterwards(Clock(), float("inf"), took_s)
    done.do(1.0, ())
    assert (done.is_interrupted, done.left_out, [*done.exact[0]]) == (True, [*NAMES[1:], TRACING], ["page"])


def test_time_for_these_parts_is_kept_and_loading_is_not_counted() -> None:
    clock = Clock()
    budget = TimeBudget(30, clock)
    with budget.part(LOADING):
        clock.now_s += 100
    with budget.part("rounds"):
        clock.now_s += 6
    assert (budget.left_s, budget.for_rounds_s) == (24, 24)
    reserve(budget, 0.1, SimpleNamespace(traces=None))  # type: ignore[arg-type]
    assert budget.for_rounds_s == pytest.approx(24 - 0.1 * sum(PARTS.values()))
    reserve(budget, 100, TASK)
    assert budget.for_rounds_s == 24 - 0.3 * 30
    assert budget.text == "loading 100.0 s, rounds 6.0 s (limit 30 s, without loading)"
