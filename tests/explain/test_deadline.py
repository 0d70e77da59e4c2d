"""The time of a search is counted in CPU seconds, so other processes do not shorten it."""

import time
from threading import Thread

import pytest

from pytest_dsocr.explain.deadline import WALL_FOR_CPU, Deadline, longest
from pytest_dsocr.explain.mistake import Mistake
from pytest_dsocr.explain.question import PageRead, Question
from pytest_dsocr.explain.search import Search, SearchResult


class Machine:
    """Machine with two clocks that gives the search one CPU second in ``share`` elapsed seconds."""

    def __init__(self, share: float) -> None:
        self.share, self.cpu_s, self.wall_s = share, 0.0, 100.0

    def work(self, cpu_s: float) -> None:
        """Advance both clocks by an amount of work."""
        self.cpu_s += cpu_s
        self.wall_s += cpu_s * self.share

    def searched(self, budget_s: float, count: int = 100) -> SearchResult:
        """Return the result of a search with candidates that take a second each."""

        def measure(one: Mistake) -> float:
            self.work(1.0)
            return 1.0

        candidates = [Mistake("sam", f"{k}", "", "block", lambda on: None) for k in range(count)]
        deadline = Deadline(budget_s, cpu=lambda: self.cpu_s, wall=lambda: self.wall_s)
        question = Question(PageRead({}, "", ()), "sam.page", 3, budget_s, 1e-4)
        return Search(question, deadline).among(candidates, measure, 1.0)


@pytest.mark.parametrize("share", [1, 2, WALL_FOR_CPU])
def test_a_busy_machine_searches_as_far(share: float) -> None:
    assert Machine(share).searched(20).tried == 21


def test_a_machine_that_gives_next_to_nothing_ends_it_all_the_same() -> None:
    assert Machine(20 * WALL_FOR_CPU).searched(20).tried == 2
    assert longest(20) == 20 * WALL_FOR_CPU


def test_neither_waiting_nor_other_threads_cost_anything() -> None:
    deadline = Deadline(0.05, wall=lambda: 0.0)  # on a busy machine the thread may wait for half a second
    other = Thread(target=lambda: sum(range(3_000_000)))
    other.start()
    other.join()
    time.sleep(0.06)
    assert not deadline.is_over
    while not deadline.is_over:
        sum(range(10_000))
