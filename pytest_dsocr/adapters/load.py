"""A server under load: readings of pages, so many at once, each timed from its request to its last piece of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from time import perf_counter

from pytest_dsocr.adapters.chat import Completion
from pytest_dsocr.observation.config import SubjectFaultError

HEAD = ("at once", "pages", "errors", "pages/s", "first text", "between texts", "page")
UNIT = ("", "", "", "", *("ms: median, 99%",) * 3)


@dataclass(frozen=True)
class Loaded:
    """What a server did while it was asked for so many pages at once."""

    at_once: int
    seconds: float
    answers: Sequence[tuple[Completion, float]]
    """With the milliseconds of each page."""
    errors: Sequence[str]

    @property
    def times_ms(self) -> dict[str, list[float]]:
        """Milliseconds by quantity: to the first text, between texts, and of a whole page."""
        first = [answer.first_ms for answer, _ in self.answers if answer.first_ms is not None]
        between = [one for answer, _ in self.answers for one in answer.between_ms]
        return {"first": first, "between": between, "page": [page_ms for _, page_ms in self.answers]}

    @property
    def row(self) -> tuple[str, ...]:
        """Its line of the table, as :data:`HEAD` names it."""
        counts = (self.at_once, len(self.answers), len(self.errors))
        times = (f"{at(of, 0.5):.0f}, {at(of, 0.99):.0f}" if of else "none" for of in self.times_ms.values())
        return (*map(str, counts), f"{len(self.answers) / self.seconds:.2f}", *times)


def at(values: Sequence[float], share: float) -> float:
    """Return the least value that this share of them does not exceed."""
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def load(ask: Callable[[int], Completion], at_once: int, number: int, on_done: Callable[[], object]) -> Loaded:
    """Ask for ``number`` pages, ``at_once`` of them at a time.

    Args:
        ask: reads the page of that number, within a limit of time of its own.
        at_once: how many requests are open.
        number: of pages in all.
        on_done: called after each.
    """

    def timed(page: int) -> tuple[Completion, float]:
        started = perf_counter()
        return ask(page), (perf_counter() - started) * 1e3

    answers, errors, started = [], [], perf_counter()
    with ThreadPoolExecutor(at_once) as threads:
        for done in as_completed([threads.submit(timed, page) for page in range(number)]):
            try:
                answers.append(done.result())
            except SubjectFaultError as error:
                errors.append(str(error))
            on_done()
    return Loaded(at_once, perf_counter() - started, answers, errors)
