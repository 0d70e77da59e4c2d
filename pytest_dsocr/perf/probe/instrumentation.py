"""What watching costs: decode steps with the subject's own ranges open and shut, in turn."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from pytest_dsocr.perf.probe.stopwatch import Stopwatch

if TYPE_CHECKING:
    from pytest_dsocr.perf.probe.page import PageProbe

BLOCK = (True, False, False, True)
"""On and off, so that what grows along the page weighs on both alike."""
LONGER = 4
"""So many times the steps of a timed page are taken, for each page begins with its vision."""
FIRST_STEPS = 2
"""Of a page, in which memory is still got."""


def instrumentation(probe: PageProbe, pages: int) -> tuple[list[float], list[float]] | None:
    """Give milliseconds of so many pages' decode steps without and with the subject's ranges, in pairs taken in turn.

    None where the subject has no ``instrumented(on)``, which gives a context with its ranges on or off, or where the
    page is too short.
    """
    switch = getattr(probe.subject, "instrumented", None)
    if not callable(switch):
        return None
    without: list[float] = []
    within: list[float] = []
    with torch.no_grad():
        for _ in range(pages):
            steps = _steps_of_page(probe, switch)[FIRST_STEPS:]
            whole = len(steps) // len(BLOCK) * len(BLOCK)
            for is_on, took_ms in steps[:whole]:
                (within if is_on else without).append(took_ms)
    return (without, within) if without else None


def _steps_of_page(probe: PageProbe, switch: Any) -> list[tuple[bool, float]]:
    watch = Stopwatch(probe.device)
    walk = probe.walk(watch)
    walk.max_new_tokens *= LONGER
    _, state = walk.begin()
    states: list[bool] = []

    def around() -> AbstractContextManager[Any]:
        states.append(BLOCK[(len(states) - FIRST_STEPS) % len(BLOCK)])
        context: AbstractContextManager[Any] = switch(states[-1])
        return context

    walk.decode(state, around)
    return list(zip(states, [lap.wall_ms for lap in watch.laps.get("decode", ())], strict=True))
