"""The schedule at its turning points, and that the architecture has every kind of part."""

from __future__ import annotations

import pytest

from ci.training.recipe import PRESET_SHARES, SCHEDULE, Schedule, architecture
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.places import MINI_FOLDER

PLAIN = Schedule(
    steps=1000,
    warmup_steps=10,
    decay_share=0.2,
    courses=((0, 100), (400, 50)),
    rehearsals=3,
    peak_learning_rate=1.0,
    least_learning_rate=0.1,
)


@pytest.mark.parametrize(
    ("step", "since_start", "rate"),
    [
        (0, 0, 0.1),
        (4, 4, 0.5),
        (9, 9, 1.0),
        (500, 500, 1.0),
        (500, 0, 0.1),
        (500, 4, 0.5),
        (800, 800, 1.0),
        (900, 900, 0.55),
        (1000, 1000, 0.1),
        (1200, 1200, 0.1),
    ],
)
def test_the_rate_warms_up_stays_and_falls(step: int, since_start: int, rate: float) -> None:
    assert PLAIN.learning_rate(step, since_start) == pytest.approx(rate)


@pytest.mark.parametrize(
    ("step", "level"), [(0, 0), (25, 0.25), (100, 1), (399, 1), (400, 0), (425, 0.5), (450, 1), (999, 1)]
)
def test_pages_grow_in_each_course(step: int, level: float) -> None:
    assert PLAIN.level(step) == level


@pytest.mark.parametrize(("step", "weight"), [(0, 5), (50, 3.5), (100, 2), (400, 2), (999, 2)])
def test_the_weight_of_words_falls_in_the_first_course(step: int, weight: float) -> None:
    assert PLAIN.word_weight(step) == weight


@pytest.mark.parametrize(("step", "rehearsals"), [(0, 0), (399, 0), (400, 3), (999, 3)])
def test_rehearsals_begin_with_the_last_course(step: int, rehearsals: int) -> None:
    assert PLAIN.rehearsals_at(step) == rehearsals


def test_the_recipes_own_numbers_agree() -> None:
    (first, length), (second, grown) = SCHEDULE.courses
    assert first == 0 < length <= second < second + grown < SCHEDULE.steps * (1 - SCHEDULE.decay_share)
    assert sum(PRESET_SHARES.values()) == pytest.approx(1)


def test_the_shipped_checkpoint_is_of_this_architecture() -> None:
    assert Architecture.from_folder(MINI_FOLDER) == architecture()
