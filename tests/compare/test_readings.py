"""Several readings of a page: failures by chance, failures by state, and faults that they exclude."""

import random
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from itertools import product

import pytest

from pytest_dsocr.compare.readings import CHANCE, EITHER, STATE, Readings, excluded
from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.records.subject_result import Reading
from tests.compare.made import answer, observation

RIGHT = answer(observation(), case_id="x")
WRONG = [answer(observation(), case_id="x", text=f"wrong {k}") for k in range(21)]


def read(failing: Collection[int], of: int = 10, *, alike: bool = True) -> Readings:
    """Return readings of one page, each after page ``a``, ``b`` or the same page."""
    said = [WRONG[0 if alike else k] if k in failing else RIGHT for k in range(1, of + 1)]
    made = [Reading(one, ["ab"[k // 2 % 2], "x"][k % 2] if k else "", k + 1) for k, one in enumerate(said)]
    verdicts = (Verdict.MATCH if one is RIGHT else Verdict.WRONG for one in said)
    return Readings(made, [[Comparison("text", v, one.text)] for v, one in zip(verdicts, said, strict=True)])


@pytest.mark.parametrize(
    ("failing", "measured", "why"),
    [
        ((), RIGHT.text, ""),
        (range(1, 11), "wrong in 10 of 10 readings: wrong", ""),
        ((4,), "wrong in 1 of 10 readings (4, after itself): wrong", EITHER),
        ((2, 5, 8), "wrong in 3 of 10 readings (2, 5, 8, after itself, a): wrong", EITHER),
        ((4, 7), "wrong in 2 of 10 readings (4, 7, after itself, b): wrong", CHANCE),
        ((3, 5), "wrong in 2 of 10 readings (3, 5, each after another page): wrong", CHANCE),
        ((3, 7), "wrong in 2 of 10 readings (3, 7, each after b): wrong", EITHER),
        ((3, 5, 7, 9), "wrong in 4 of 10 readings (3, 5, 7, 9, each after another page): wrong", STATE),
        ((9, 10), "wrong in 2 of 10 readings (9, 10, each from reading 9 of its process on, after a): wrong", EITHER),
        (range(2, 11), "wrong in 9 of 10 readings (2, 3, 4, 5, 6, 7 and 3 more, each from reading 2", STATE),
    ],
)
def test_what_failing_readings_have_in_common(failing: Collection[int], measured: str, why: str) -> None:
    readings = read(failing)
    [found] = readings.summed()
    assert (found.measured[: len(measured)], readings.why, readings.failing) == (measured, why, (*failing,))
    assert found.passes is not bool(failing)
    assert read(range(1, 11), alike=False).why == EITHER


def test_what_a_count_of_readings_does_is_not_called_chance() -> None:
    """Each second, third and so on of a process, where other pages are read in between, fails from the first on."""
    for of, first, every in product(range(2, 13), range(1, 13), range(2, 13)):
        places = [k + k // 2 for k in range(1, of + 1)]
        failing = [k for k, place in enumerate(places, 1) if place >= first and (place - first) % every == 0]
        readings = read(failing, of)
        made = [one._replace(place=place) for one, place in zip(readings.made, places, strict=True)]
        assert replace(readings, made=made).why != CHANCE, (of, first, every)


def test_chance_is_hardly_ever_called_state() -> None:
    """A race fails with several rates, and always with the same wrong text, which is the hardest case."""
    for of in (3, 5, 10, 20):
        for share in (0.05, 0.2, 0.5, 0.8):
            draw = random.Random(of)
            runs = (read([k for k in range(1, of + 1) if draw.random() < share], of) for _ in range(200))
            why = Counter(one.why for one in runs)
            assert why[STATE] <= 0.05 * 200, (of, share, why)


def test_how_rare_a_fault_readings_without_one_exclude() -> None:
    for readings in (1, 10, 149):
        assert (1 - 1 / excluded(readings)) ** readings == pytest.approx(0.05)
    assert excluded(148) < 50 < excluded(149)
