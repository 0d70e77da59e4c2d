"""Parts of a bench after its rounds: counting and tracing, as far as the time goes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from msgspec import convert

from pytest_dsocr.subjects.loading import ENGINES, VENDOR
from pytest_dsocr.timing.budget import TimeBudget
from pytest_dsocr.timing.counts import PARTS
from pytest_dsocr.timing.limits import Watcher
from pytest_dsocr.timing.side import TimedSide, ask_all
from pytest_dsocr.timing.statistics import Judgement
from pytest_dsocr.timing.trace import TraceDifference, difference
from pytest_dsocr.timing.traced import TraceTable
from pytest_dsocr.timing.turns import Task, absolute

TRACING, TRACED_PAGES = "tracing", 50
"""Name of the last part, and how many times as long as reading the page it may take on both sides."""
MOST_RESERVED = 0.3
"""Largest part of the seconds that is kept for these parts."""


def reserve(budget: TimeBudget, page_s: float, task: Task) -> None:
    """Keep time for the parts after the rounds."""
    pages = sum(PARTS.values()) + (TRACED_PAGES if task.traces else 0)
    budget.reserved_s = min(pages * page_s, MOST_RESERVED * budget.seconds)


@dataclass
class Afterwards:
    """Counts of both sides and their traces; a part starts only if it is likely to end in time."""

    both: Sequence[TimedSide]
    task: Task
    budget: TimeBudget
    watch: Watcher
    exact: list[dict[str, int]] = field(default_factory=lambda: [{}, {}])
    trace: TraceDifference | None = None
    left_out: list[str] = field(default_factory=list)
    """Parts that were not done, since no time was left, or Ctrl-C was pressed."""
    is_interrupted: bool = False

    def do(self, page_s: float, judgements: Sequence[Judgement]) -> None:
        """Do each part for which time is left, if a page takes ``page_s`` seconds; if one takes longer, so may others.

        Times of a trace are explained only for the stages that these judgements call changed.
        """
        self.budget.reserved_s = 0
        parts = self._parts(judgements)
        for k, (name, pages, act) in enumerate(parts):
            if self.is_interrupted or pages * page_s > self.budget.left_s:
                self.left_out.append(name)
                continue
            began_s = self.budget.elapsed_s
            self.watch(name, k, len(parts))
            try:
                with self.budget.part(name.partition(" ")[0]):
                    act()
            except KeyboardInterrupt:
                self.is_interrupted = True
                self.left_out.append(name)
            page_s = max(page_s, (self.budget.elapsed_s - began_s) / pages)

    def _parts(self, judgements: Sequence[Judgement]) -> list[tuple[str, int, Callable[[], None]]]:
        """Return the name of each part, how many pages it takes at most, and what does it."""
        parts: list[tuple[str, int, Callable[[], None]]] = [
            (f"counting {part}", pages, partial(self._count, part)) for part, pages in PARTS.items()
        ]
        return parts + [(TRACING, TRACED_PAGES, partial(self._trace, judgements))] * bool(self.task.traces)

    def _count(self, part: str) -> None:
        for exact, found in zip(self.exact, ask_all(self.both, "exact", [{"parts": [part]}] * 2), strict=True):
            exact |= found

    def _trace(self, judgements: Sequence[Judgement]) -> None:
        """Trace each side once, one after the other; both know both subjects' packages for code that is to blame."""
        specs = [absolute(side.candidate.subject or self.task.subject, VENDOR) for side in self.both]
        own = [__package__ if one in ENGINES else one for one in specs]
        packages = [one.partition(":")[0].partition(".")[0] for one in own if not one.startswith(VENDOR)]
        tables = []
        for side in self.both:
            trees = [
                *map(str, side.candidate.path),
                *(one.removeprefix(VENDOR) for one in own if one.startswith(VENDOR)),
            ]
            file = f"{self.task.traces}/{side.label}.trace.json"
            tables.append(convert(side.ask("trace", file=file, trees=trees, packages=packages), TraceTable))
        self.trace = difference(tables[0], tables[1], [one.quantity for one in judgements if one.is_change])
