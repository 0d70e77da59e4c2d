"""Where each cell of the page's grid stands: a column for each night, a row for each stage, and one for each case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from pytest_dsocr.nights.cells import STAGES, WORDS, WRONG, gravest
from pytest_dsocr.nights.record import Night
from pytest_dsocr.nights.spells import cells_in, letter_of

LABELS, GAP = 250.0, 2.0
WIDEST, NARROWEST, ROOM = 28.0, 5.0, 840.0
NIGHT_ROW, STAGE_ROW, CASE_ROW, AIR = 26.0, 22.0, 16.0, 26.0
NO_CASE, NO_LETTER = "of no page", "none"
EVERY_DATE = 74.0
"""How far apart dates stand at least."""


class Rect(NamedTuple):
    """A coloured rectangle, and what is told where one points at it."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    """A verdict's letter, or a night's word."""
    told: str = ""
    text: str = ""


class Label(NamedTuple):
    """A text, and where it stands."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Grid:
    """All that is drawn."""

    width: float
    height: float
    rects: Sequence[Rect]
    labels: Sequence[Label]
    """Of the rows, at their right ends."""
    headings: Sequence[Label]
    dates: Sequence[Label]
    commits: Sequence[float]
    """Where a commit differs from the one before: vertical lines."""


def grid(nights: Sequence[Night]) -> Grid:
    """Lay the nights out."""
    step = max(NARROWEST, min(WIDEST, ROOM / max(len(nights), 1)))
    cells = cells_in(nights)
    stages = [stage for stage in STAGES if any(one == stage for _, one in cells)]
    cases = list(dict.fromkeys(case for case, _ in cells))
    headings, labels, rects = [], [Label(LABELS - 8, NIGHT_ROW / 2, "night")], [*_of_nights(nights, step)]
    y = NIGHT_ROW + AIR + AIR
    if not stages:
        return Grid(LABELS + step * len(nights) + 12, y, rects, labels, (), [*_dates(nights, step)], ())
    headings.append(Label(0, y - 8, f"by stage: the gravest of {len(cases)} cases, and how many are wrong"))
    for stage in stages:
        labels.append(Label(LABELS - 8, y + STAGE_ROW / 2, stage))
        rects += _of_stage(nights, stage, cases, y, step)
        y += STAGE_ROW
    y += AIR + 8
    headings.append(Label(0, y - 8, f"by case: in each cell the stages side by side, from {stages[0]} to {stages[-1]}"))
    for case in cases:
        labels.append(Label(LABELS - 8, y + CASE_ROW / 2, case or NO_CASE))
        rects += _of_case(nights, case, stages, y, step)
        y += CASE_ROW
    changed = [LABELS + k * step - GAP / 2 for k in range(1, len(nights)) if nights[k].commit != nights[k - 1].commit]
    return Grid(LABELS + step * len(nights) + 12, y + 8, rects, labels, headings, [*_dates(nights, step)], changed)


def _of_nights(nights: Sequence[Night], step: float) -> Iterator[Rect]:
    for k, night in enumerate(nights):
        told = f"{night.at}: {night.verdict}"
        yield Rect(LABELS + k * step, 0, step - GAP, NIGHT_ROW - GAP, night.word.replace(" ", "-"), told)


def _of_stage(nights: Sequence[Night], stage: str, cases: Sequence[str], y: float, step: float) -> Iterator[Rect]:
    for k, night in enumerate(nights):
        letters = [letter for case in cases if (letter := letter_of(night, (case, stage)))]
        wrong = letters.count(WRONG)
        if letters:
            letter = gravest(letters)
            told = f"{night.at}, {stage}: {WORDS[letter]}" + (f" in {wrong} of {len(letters)} cases" if wrong else "")
            number = str(wrong) if wrong and step >= 14 else ""
            yield Rect(LABELS + k * step, y, step - GAP, STAGE_ROW - GAP, letter, told, number)


def _of_case(nights: Sequence[Night], case: str, stages: Sequence[str], y: float, step: float) -> Iterator[Rect]:
    slice_width = (step - GAP) / len(stages)
    for k, night in enumerate(nights):
        letters = [letter_of(night, (case, stage)) for stage in stages]
        worst = gravest(filter(None, letters))
        if not worst:
            continue
        named = [stage for stage, letter in zip(stages, letters, strict=True) if letter == worst]
        told = f"{night.at}, {case or NO_CASE}: {WORDS[worst]} in {', '.join(named)}"
        yield Rect(LABELS + k * step, y, step - GAP, CASE_ROW - GAP, NO_LETTER)
        place = 0
        for letter, same in groupby(letters):
            wide = len([*same])
            if letter:
                x = LABELS + k * step + place * slice_width
                yield Rect(x, y, wide * slice_width, CASE_ROW - GAP, letter, told)
            place += wide


def _dates(nights: Sequence[Night], step: float) -> Iterator[Label]:
    last = -EVERY_DATE
    for k, night in enumerate(nights):
        if k * step - last >= EVERY_DATE:
            last = k * step
            yield Label(LABELS + last, NIGHT_ROW + 12, night.day)
