"""A page read repeatedly by a subject: stages are timed, and calls of torch are counted."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pytest_dsocr.timing.counts import PARTS
from pytest_dsocr.timing.probe.machine import Surveyor, Yardstick, move_to
from pytest_dsocr.timing.probe.stopwatch import Laps, Stopwatch, apart, in_quantities, shortest
from pytest_dsocr.timing.probe.walk import Left, Walk
from pytest_dsocr.timing.rounds import OF_START, PAGE

STAGES = ("inputs", "vision", "prefill", "step")
"""The methods of a subject whose stages can be timed one by one."""
READINGS = 2
"""Readings of a round, unless another number is asked for; the shortest time of each lap counts."""
MOST_SPOILT = 2
"""Largest number of spoilt readings in a round; it is also at most the number of good ones."""
WARM = 0.1
"""Share by which the next round may be faster while a round still counts as warm."""
MOST_WARM_UPS = 5


class PageProbe:
    """Measurement of one page with one subject; see :mod:`pytest_dsocr.subjects.protocol`.

    Args:
        subject: of any level. With stages, these are timed one by one; with named modules, vision as well.
        page: an image.
        prompt: with its ``<image>``.
        preset: as the subject's ``read`` takes it.
        max_new_tokens: the limit of the output, which keeps a round short.
        device: ``cpu``, ``cuda`` or ``cuda:N``, where the subject computes.
        friends: see :class:`Surveyor`.
    """

    def __init__(
        self,
        subject: Any,
        page: Path,
        *,
        prompt: str,
        preset: Any,
        max_new_tokens: int,
        device: str = "cpu",
        friends: Collection[int] = (),
    ) -> None:
        self.subject, self.page = subject, page
        self.asked: dict[str, Any] = {"prompt": prompt, "preset": preset}
        self.max_new_tokens, self.device = max_new_tokens, device
        self.surveyor, self.yardstick = Surveyor(device, friends), Yardstick(device)
        self.has_stages = all(callable(getattr(subject, name, None)) for name in STAGES)
        self.left = Left()
        self.rounds = 0
        self.is_cold = True
        self.along: Sequence[int] = ()
        self.is_page_along = False

    def work(self) -> dict[str, Any]:
        """Read the page once, whole and by its stages; return the text, and the tokens if there are stages."""
        self.is_cold = False
        with torch.no_grad():
            text = self.read()
            walk = self.walk(Stopwatch("cpu"))
            if self.has_stages:
                walk.whole()
        return {"text": text.strip(), "tokens": walk.tokens}

    def drive(self, tokens: Sequence[int], is_page_along: bool) -> None:
        """Feed these tokens from now on instead of the best ones; if asked for, a page is also read by its stages."""
        self.along, self.is_page_along = tokens, is_page_along
        self.left.tokens = tokens

    def warm_up(self) -> int:
        """Read the page's start until it is no longer faster than before; return the number of readings.

        A subject without stages reads the whole page.
        """
        gc.collect()
        gc.freeze()  # so that the collection before each round does not go through all modules again
        if self.is_cold:
            self.work()
        before = self._start_ms()
        for done in range(2, MOST_WARM_UPS + 1):
            now = self._start_ms()
            if now > before * (1 - WARM):
                return done
            before = now
        return MOST_WARM_UPS

    def round(self, only: Collection[str] = (), repeats: int = READINGS) -> dict[str, Any]:
        """Read the page a few times, watched; return the fields of :class:`pytest_dsocr.timing.rounds.Round`.

        If ``only`` names quantities, only their stages are repeated: a decode step reuses a prefilled cache, the page's
        inputs and its features.

        The shortest of each lap counts, since a disturbance only makes it longer. Spoilt readings count only if all
        readings are spoilt; then the round is too.
        """
        self.rounds += 1
        readings: list[_Reading] = []
        fit: list[_Reading] = []
        with _without_collection(), torch.no_grad():
            while len(fit) < repeats and len(readings) < repeats + min(repeats, MOST_SPOILT):
                if self.device.startswith("cuda"):  # a CPU's subject has threads on several cores
                    move_to(self.rounds)
                readings.append(self._reading(only))
                fit = [one for one in readings if not one.spoilt]
        fit = fit or readings
        best = min(fit, key=lambda one: one.took_ms)
        quantities = in_quantities(shortest([one.laps for one in fit])).items()
        laps = {name: lap for name, lap in quantities if not only or name in only}
        times = {field: {name: getattr(lap, field) for name, lap in laps.items()} for field in ("wall_ms", "host_ms")}
        return {**times, "conditions": best.conditions, "spoilt": best.spoilt}

    def exact(self, parts: Collection[str] = PARTS) -> dict[str, int]:
        """Count what is the same in every round; slow, and not timed."""
        from pytest_dsocr.timing.probe.counting import count

        with torch.no_grad():
            return count(self, parts)

    def read(self, max_new_tokens: int | None = None) -> str:
        """Read the page to its end or the limit of tokens, with the subject's own ``read``."""
        text: str = self.subject.read(self.page, **self.asked, max_new_tokens=max_new_tokens or self.max_new_tokens)
        return text

    def _reading(self, only: Collection[str] = ()) -> _Reading:
        watch = Stopwatch(self.device, self.yardstick)
        self.surveyor.begin()
        if self.has_stages and {*only} != {PAGE}:
            self.walk(watch, only).whole()
        if not only or PAGE in only:
            with watch.lap(PAGE):
                if self.is_page_along:
                    self.walk(Stopwatch("cpu")).whole()
                else:
                    self.read()
        laps = apart(watch.laps)
        return _Reading(laps, *self.surveyor.end(_took_ms(laps)))

    def _start_ms(self) -> float:
        with _without_collection(), torch.no_grad():
            return self._reading(OF_START if self.has_stages else (PAGE,)).took_ms

    def walk(self, watch: Stopwatch, only: Collection[str] = ()) -> Walk:
        """Return the page to be read stage by stage, or those stages alone that some quantities need."""
        how = (self.subject, self.page, self.asked, self.max_new_tokens, watch, self.left)
        return Walk(*how, frozenset(only), self.along)


@dataclass(frozen=True)
class _Reading:
    """The page read once."""

    laps: Laps
    conditions: dict[str, Any]
    spoilt: list[str]

    @property
    def took_ms(self) -> float:
        return _took_ms(self.laps)


def _took_ms(laps: Laps) -> float:
    return sum(lap.wall_ms for of in laps.values() for lap in of)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Collect garbage before, and not within."""
    gc.collect()
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
