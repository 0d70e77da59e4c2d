"""One page over all nights, which needs no network and runs nothing: a column a night, a row a stage and a case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pytest_dsocr.foundation.files import templates
from pytest_dsocr.foundation.words import count
from pytest_dsocr.night.record import LETTERS, MACHINE, STAGES, WORDS, WRONG, Night, gravest
from pytest_dsocr.night.spells import NO_CASE, cells_in, flips, letter_of, spells
from pytest_dsocr.perf import history
from pytest_dsocr.perf.history import Series

TEMPLATE = "page.html.j2"
EVERY_DATE = 8
"""Columns that a date stands over."""


class Cell(NamedTuple):
    """What one night says in a row."""

    kinds: Sequence[str]
    """Verdicts' letters side by side, one for each stage in a row of a case; empty where nothing was judged."""
    title: str = ""
    text: str = ""


class Row(NamedTuple):
    """A stage or a case, and a cell for each night."""

    label: str
    cells: Sequence[Cell]


def html(nights: Sequence[Night], series: Sequence[Series], damaged: Sequence[str]) -> str:
    """Render the page; all that stands in it is escaped.

    Args:
        nights: the oldest first.
        series: times, of the nights and of other runs.
        damaged: what could not be read, a sentence each.
    """
    environment = templates(Path(__file__).parent, history.FOLDER)
    environment.filters |= {"of": count}
    of_cells = cells_in(nights)
    stages = [stage for stage in STAGES if any(one == stage for _, one in of_cells)]
    cases = list(dict.fromkeys(case for case, _ in of_cells))
    return environment.get_template(TEMPLATE).render(
        nights=nights,
        changed=[False, *(a.commit != b.commit for a, b in pairwise(nights))],
        every_date=EVERY_DATE,
        grids=[
            (
                f"by stage: the gravest of {count(len(cases), 'case')}, and how many are wrong",
                [Row(stage, [_of_stage(night, stage, cases) for night in nights]) for stage in stages],
            ),
            (
                f"by case: in each cell the stages side by side, {' to '.join([*stages[:1], *stages[-1:]])}",
                [Row(case or NO_CASE, [_of_case(night, case, stages) for night in nights]) for case in cases],
            ),
        ],
        spells=[(one, str(one)) for one in spells(nights)],
        flips=[flip.of(cells) for flip, cells in flips(nights).items()],
        flaky=list(dict.fromkeys(test for night in nights for test in night.flaky)),
        legend=[(letter, WORDS[letter]) for letter in (*LETTERS.values(), MACHINE)],
        damaged=damaged,
        **history.drawn(series),
    )


def _of_stage(night: Night, stage: str, cases: Sequence[str]) -> Cell:
    """Return the gravest letter of a stage, and how many cases are wrong."""
    letters = [*filter(None, (letter_of(night, (case, stage)) for case in cases))]
    if not letters:
        return Cell(())
    letter, wrong = gravest(letters), letters.count(WRONG)
    title = f"{night.at}, {stage}: {WORDS[letter]}" + (f" in {wrong} of {len(letters)} cases" if wrong else "")
    return Cell((letter,), title, str(wrong or ""))


def _of_case(night: Night, case: str, stages: Sequence[str]) -> Cell:
    """Return a case's letter of each stage, from the tokenizer to the text, and where the gravest stands."""
    letters = [letter_of(night, (case, stage)) for stage in stages]
    worst = gravest(filter(None, letters))
    if not worst:
        return Cell(())
    where: Iterator[str] = (stage for stage, letter in zip(stages, letters, strict=True) if letter == worst)
    return Cell(letters, f"{night.at}, {case or NO_CASE}: {WORDS[worst]} in {', '.join(where)}")
