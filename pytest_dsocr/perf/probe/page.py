"""One page, read by one subject as often as asked: its stages timed, and what it asks of torch counted."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pytest_dsocr.perf.probe.conditions import Surveyor
from pytest_dsocr.perf.probe.stopwatch import Stopwatch
from pytest_dsocr.perf.probe.walk import Walk

STAGES = ("inputs", "vision", "prefill", "step")
"""The methods of a subject whose stages can be timed one by one."""
FEW = 8
"""Decode steps at each end that early and late are the median of."""
WARM = 0.1
"""How much faster the next round may be while a round still counts as warm."""
MOST_WARM_UPS = 5


class PageProbe:
    """One page and one subject; see :mod:`pytest_dsocr.subjects.protocol`.

    Args:
        subject: of any level. With stages, these are timed one by one; with named modules, vision as well.
        page: an image.
        prompt: with its ``<image>``.
        preset: as the subject's ``read`` takes it.
        max_new_tokens: the ceiling of the output, so that a round stays short.
        device: ``cpu``, ``cuda`` or ``cuda:N``, where the subject computes.
        planted: see :class:`Stopwatch`; for proofs.
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
        planted: Mapping[str, float] = {},
        friends: Collection[int] = (),
    ) -> None:
        self.subject, self.page = subject, page
        self.asked: dict[str, Any] = {"prompt": prompt, "preset": preset}
        self.max_new_tokens, self.device, self.planted = max_new_tokens, device, planted
        self.surveyor = Surveyor(device, friends)
        self.has_stages = all(callable(getattr(subject, name, None)) for name in STAGES)

    def warm_up(self) -> int:
        """Read the page until a round is no longer faster than the one before; give how many it took."""
        before = self.round()["wall_ms"]["page"]
        for done in range(2, MOST_WARM_UPS + 1):
            now = self.round()["wall_ms"]["page"]
            if now > before * (1 - WARM):
                return done
            before = now
        return MOST_WARM_UPS

    def round(self) -> dict[str, Any]:
        """Read the page once, watched; give the fields of :class:`pytest_dsocr.perf.rounds.Round`."""
        watch = Stopwatch(self.device, self.planted)
        with _without_collection(), torch.no_grad():
            self.surveyor.begin()
            if self.has_stages:
                self.walk(watch).whole()
            with watch.lap("page"):
                self.read()
        conditions = self.surveyor.end(sum(map(sum, watch.wall_ms.values())))
        return {
            "wall_ms": in_quantities(watch.wall_ms),
            "stream_ms": in_quantities(watch.stream_ms),
            "conditions": dict(conditions.values),
            "spoilt": list(conditions.spoilt),
        }

    def exact(self) -> dict[str, int]:
        """Count what is the same in every round; slow, and not timed."""
        from pytest_dsocr.perf.probe.counting import count

        with torch.no_grad():
            return count(self)

    def read(self, max_new_tokens: int | None = None) -> str:
        """Read the page to its end, or to the ceiling, as the subject does it by itself."""
        text: str = self.subject.read(self.page, **self.asked, max_new_tokens=max_new_tokens or self.max_new_tokens)
        return text

    def walk(self, watch: Stopwatch) -> Walk:
        """Give the page to be read stage by stage."""
        return Walk(self.subject, self.page, self.asked, self.max_new_tokens, watch)


def in_quantities(laps: Mapping[str, list[float]]) -> dict[str, float]:
    """Give what is judged of a round's laps: sums of stages, the median decode step, an early and a late one."""
    found = {name: sum(laps[name]) for name in laps if name not in ("vision", "decode", "page")}
    if "vision" in laps:
        encoders = sum(found.get(name, 0.0) for name in ("sam", "clip", "projector"))
        rest = "vision_fusion" if encoders else "vision"
        found = {**_upto(found, "prefill"), rest: sum(laps["vision"]) - encoders, **_from(found, "prefill")}
        found["first_token"] = sum(laps["tokenizer"]) + sum(laps["vision"]) + found["prefill"]
    if steps := laps.get("decode"):
        found["decode"] = statistics.median(steps)
        if len(steps) >= 2 * FEW:
            found["decode.early"] = statistics.median(steps[:FEW])
            found["decode.late"] = statistics.median(steps[-FEW:])
    return {**found, **({"page": sum(laps["page"])} if "page" in laps else {})}


def _upto(found: Mapping[str, float], name: str) -> dict[str, float]:
    names = [*found]
    return {one: found[one] for one in names[: names.index(name)]}


def _from(found: Mapping[str, float], name: str) -> dict[str, float]:
    names = [*found]
    return {one: found[one] for one in names[names.index(name) :]}


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
