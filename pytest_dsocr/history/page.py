"""Views of all nights: failures with their first and last night, and times; for the terminal and as a page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pytest_dsocr.base.words import count, entry, listed
from pytest_dsocr.history.record import LETTERS, MACHINE, RIGHT, STAGES, WORDS, WRONG, Night, Timed, gravest
from pytest_dsocr.report.strip import MARKS
from pytest_dsocr.report.views import shared_templates
from pytest_dsocr.timing.identity import title_of

NO_CASE = "of no page"
MOST = 20
APART = "a night of one can end a streak of another, so give each a folder of its own"
"""Streaks that a terminal shows."""
EVERY_DATE = 8
"""Columns of the page between two dates."""
TEMPLATE = "history.html.j2"
SIGNS = {LETTERS[verdict]: sign for verdict, (sign, _) in MARKS.items()} | {MACHINE: "!"}
NIGHT_SIGNS = {"passes": "✓", "wrong": "✗", "slower": "▾"}
"""Signs of letters and nights, for readers who see no colours."""
Cell = tuple[str, str]
"""A case and a stage."""


@dataclass(frozen=True)
class BrokenStreak:
    """Cells that broke in the same night, and were fixed in the same night or not yet."""

    good: Night | None
    """The last good night before; None if there is none."""
    first: Night
    """The first bad night."""
    fixed: Night | None
    cells: tuple[Cell, ...]
    """Sorted by stage, then by case."""

    def __str__(self) -> str:
        cases, stages = ([*dict.fromkeys(cell[k] for cell in self.cells)] for k in range(2))
        where = listed([case or NO_CASE for case in cases]) if len(cases) <= 2 else count(len(cases), "case")
        what = f"{listed(stages)} of {where}"
        good = f"last right {self.good.at}" if self.good else "never right before"
        until = f", right again {self.fixed.at}" if self.fixed else ""
        return f"first bad {self.first.at}: {what}; {good}{until}"


def streaks(nights: Sequence[Night]) -> list[BrokenStreak]:
    """Return every streak of wrong nights: first those that continue, then the latest first.

    A night in which a cell was not compared neither starts nor ends its streak.
    """
    found: dict[tuple[int, int, int], list[Cell]] = {}
    for case, stage in cells_in(nights):
        letters = [night.cells.get(case, {}).get(stage, "") for night in nights]
        for times in _streaks_of(letters):
            found.setdefault(times, []).append((case, stage))
    made = [
        BrokenStreak(
            nights[good] if good >= 0 else None,
            nights[first],
            nights[fixed] if fixed < len(nights) else None,
            tuple(sorted(cells, key=lambda cell: (STAGES.index(cell[1]), cell[0]))),
        )
        for (good, first, fixed), cells in found.items()
    ]
    return sorted(sorted(made, key=lambda one: one.first.started, reverse=True), key=lambda one: one.fixed is not None)


def cells_in(nights: Sequence[Night]) -> list[Cell]:
    """Return every case and stage that any night compared: cases in order of appearance, stages in that of the data."""
    found = {(case, stage): None for night in nights for case, stages in night.cells.items() for stage in stages}
    cases = list(dict.fromkeys(case for case, _ in found))
    return sorted(found, key=lambda cell: (cases.index(cell[0]), STAGES.index(cell[1])))


def lines(nights: Sequence[Night], damaged: Sequence[str]) -> Iterator[str]:
    """Yield the lines for a terminal: streaks, flaky tests, the last night's verdict, and times."""
    if nights:
        first, last = nights[0], nights[-1]
        days = f"{first.day} to {last.day}"
        yield from entry("nights", f"{len(nights)}, {days}; {last.subject or 'no subject'} {last.setting}".strip())
        named = {f"{night.subject} {night.setting}": None for night in nights if night.subject}
        if len(named) > 1:
            yield from entry("noticed", f"several subjects or settings are one row: {listed([*named])}; {APART}")
        for streak in streaks(nights)[:MOST]:
            yield from entry("still wrong" if streak.fixed is None else "was wrong", str(streak), 6)
        if flaky := dict.fromkeys(test for night in nights for test in night.flaky):
            yield from entry("flaky", f"passed only when run again: {listed([*flaky])}")
        yield from entry("last night", f"{last.at}: {last.verdict}")
        for title, quantities in times(nights).items():
            yield from entry("times", title)
            for quantity, timed in quantities.items():
                since = f"; first {times_in(*timed[0], quantity)}" if len(timed) > 1 else ""
                yield from entry(quantity, f"{times_in(*timed[-1], quantity)}{since}")
                for why in accepted_in(timed, quantity):
                    yield from entry("accepted", f"{quantity} {why}")
    yield from (f"problem         {why}" for why in damaged)


class Judged(NamedTuple):
    """Verdict of one stage in one night; empty texts if nothing was compared."""

    letter: str = ""
    """Letter of the worst verdict."""
    title: str = ""
    wrong: str = ""
    """Number of wrong cases; empty if there are none."""


def times(nights: Sequence[Night]) -> dict[str, dict[str, list[tuple[Night, Timed]]]]:
    """Return the nights that timed a quantity, by the title of a comparable series, then by quantity."""
    found: dict[str, dict[str, list[tuple[Night, Timed]]]] = {}
    for night in nights:
        for one in night.times:
            for quantity in one.quantities:
                found.setdefault(title_of(one.series), {}).setdefault(quantity, []).append((night, one))
    return found


def times_in(night: Night, timed: Timed, quantity: str) -> str:
    """Return a quantity's times in a night, with the verdict if it was judged."""
    verdict = timed.verdicts.get(quantity)
    as_accepted = " as accepted" * (quantity in timed.accepted)
    return f"{timed.quantities[quantity]} {night.at}" + (f", {verdict}{as_accepted}" if verdict else "")


def accepted_in(timed: Sequence[tuple[Night, Timed]], quantity: str) -> list[str]:
    """Return each reason for which a slow-down is accepted, with its first night."""
    whys = ["", *(one.accepted.get(quantity, "") for _, one in timed)]
    starts = zip(pairwise(whys), timed, strict=True)
    return [f"slower since {night.at}: {why}" for (before, why), (night, _) in starts if why not in ("", before)]


def html(nights: Sequence[Night], damaged: Sequence[str]) -> str:
    """Render a page with a column for each night and a row for each stage.

    The page needs no network and runs no script. Every value is escaped.
    """
    environment = shared_templates(Path(__file__).parent)
    seen = {stage for _, stage in cells_in(nights)}
    return environment.get_template(TEMPLATE).render(
        nights=nights,
        changed=[False, *(a.commit != b.commit for a, b in pairwise(nights))],
        every_date=EVERY_DATE,
        stages=[(stage, [_stage_verdict(night, stage) for night in nights]) for stage in STAGES if stage in seen],
        streaks=streaks(nights),
        signs=SIGNS,
        night_signs=NIGHT_SIGNS,
        legend=[(letter, WORDS[letter]) for letter in (*LETTERS.values(), MACHINE)],
        bars={
            title: {name: (_bars(timed, name), accepted_in(timed, name)) for name, timed in quantities.items()}
            for title, quantities in times(nights).items()
        },
        damaged=damaged,
    )


def _stage_verdict(night: Night, stage: str) -> Judged:
    letters = {case: stages[stage] for case, stages in night.cells.items() if stage in stages}
    if not letters:
        return Judged()
    worst = gravest(letters.values())
    wrong = [case or NO_CASE for case, letter in letters.items() if letter == WRONG]
    where = f" in {len(wrong)} of {len(letters)} cases: {listed(wrong)}" if wrong else ""
    return Judged(worst, f"{night.at}, {stage}: {WORDS[worst]}{where}", str(len(wrong) or ""))


def _bars(timed: Sequence[tuple[Night, Timed]], quantity: str) -> list[tuple[float, str, str]]:
    """Return for each night the median as a share of the largest, the verdict, and a text with both."""
    most_ms = max(one.quantities[quantity].median_ms for _, one in timed) or 1.0
    return [
        (
            one.quantities[quantity].median_ms / most_ms,
            one.verdicts.get(quantity, "") + " accepted" * (quantity in one.accepted),
            times_in(night, one, quantity),
        )
        for night, one in timed
    ]


def _streaks_of(letters: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Yield the indices of each streak's last good night (or -1), first bad night and next good night (or the end)."""
    good, first = -1, None
    for k, letter in enumerate(letters):
        if letter == WRONG and first is None:
            first = k
        elif letter and letter in RIGHT:
            if first is not None:
                yield good, first, k
            good, first = k, None
    if first is not None:
        yield good, first, len(letters)
