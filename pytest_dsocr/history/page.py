"""Every night: what went wrong when, what is wrong still, and the times; for the terminal, and as a page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from pytest_dsocr.base.files import templates
from pytest_dsocr.base.words import count, entry, listed
from pytest_dsocr.history.record import LETTERS, MACHINE, RIGHT, STAGES, WORDS, WRONG, Night, Timed, gravest
from pytest_dsocr.timing.identity import title_of

NO_CASE = "of no page"
MOST = 20
"""Spells that a terminal shows."""
EVERY_DATE = 8
"""Columns of the page that a date stands over."""
TEMPLATE = "history.html.j2"
Cell = tuple[str, str]
"""Case and stage."""


@dataclass(frozen=True)
class BrokenStreak:
    """Cells that went wrong in the same night, and were right again in the same, if they were."""

    good: Night | None
    """The last night before in which they were right; None where they never were."""
    first: Night
    """The first bad one."""
    mended: Night | None
    cells: tuple[Cell, ...]
    """In the order of the data."""

    def __str__(self) -> str:
        what = f"{listed(list(dict.fromkeys(stage for _, stage in self.cells)))} of {_cases(self.cells)}"
        good = f"last right {self.good.at}" if self.good else "never right before"
        until = f", right again {self.mended.at}" if self.mended else ""
        return f"first bad {self.first.at}: {what}; {good}{until}"


def spells(nights: Sequence[Night]) -> list[BrokenStreak]:
    """Return every spell of wrong nights, those that go on first, then the latest first.

    A night that did not compare a cell says nothing of it.
    """
    found: dict[tuple[int, int, int], list[Cell]] = {}
    for cell in cells_in(nights):
        for times in _spells_of([(k, night.cells.get(cell[0], {}).get(cell[1], "")) for k, night in enumerate(nights)]):
            found.setdefault(times, []).append(cell)
    made = [
        BrokenStreak(
            nights[good] if good >= 0 else None,
            nights[first],
            nights[mended] if mended < len(nights) else None,
            tuple(sorted(cells, key=lambda cell: (STAGES.index(cell[1]), cell[0]))),
        )
        for (good, first, mended), cells in found.items()
    ]
    return sorted(sorted(made, key=lambda one: one.first.started, reverse=True), key=lambda one: one.mended is not None)


def cells_in(nights: Sequence[Night]) -> list[Cell]:
    """Return every case and stage that any night judged, by case as it came, by stage as the data flows."""
    found = {(case, stage): None for night in nights for case, stages in night.cells.items() for stage in stages}
    cases = list(dict.fromkeys(case for case, _ in found))
    return sorted(found, key=lambda cell: (cases.index(cell[0]), STAGES.index(cell[1])))


def lines(nights: Sequence[Night], damaged: Sequence[str]) -> Iterator[str]:
    """Yield the nights for a terminal: what broke, what was flaky, and how the last one ended."""
    if nights:
        first, last = nights[0], nights[-1]
        days = f"{first.day} to {last.day}"
        yield from entry("nights", f"{len(nights)}, {days}; {last.subject or 'no subject'} {last.setting}".strip())
        for spell in spells(nights)[:MOST]:
            yield from entry("still wrong" if spell.mended is None else "was wrong", str(spell), 6)
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
    """What one night says of a stage; all are empty where it judged nothing of it."""

    letter: str = ""
    """Of the gravest verdict."""
    title: str = ""
    wrong: str = ""
    """How many cases are wrong, where any is."""


def times(nights: Sequence[Night]) -> dict[str, dict[str, list[tuple[Night, Timed]]]]:
    """Return the nights that timed a quantity, by the title of what compares with one another, then by quantity."""
    found: dict[str, dict[str, list[tuple[Night, Timed]]]] = {}
    for night in nights:
        for one in night.times:
            for quantity in one.quantities:
                found.setdefault(title_of(one.series), {}).setdefault(quantity, []).append((night, one))
    return found


def times_in(night: Night, timed: Timed, quantity: str) -> str:
    """Return a quantity's times in a night, and the verdict where there is one."""
    verdict = timed.verdicts.get(quantity)
    as_accepted = " as accepted" * (quantity in timed.accepted)
    return f"{timed.quantities[quantity]} {night.at}" + (f", {verdict}{as_accepted}" if verdict else "")


def accepted_in(timed: Sequence[tuple[Night, Timed]], quantity: str) -> list[str]:
    """Say since which night a slow-down is accepted, and why; again where the reason is another."""
    whys = ["", *(one.accepted.get(quantity, "") for _, one in timed)]
    starts = zip(pairwise(whys), timed, strict=True)
    return [f"slower since {night.at}: {why}" for (before, why), (night, _) in starts if why not in ("", before)]


def html(nights: Sequence[Night], damaged: Sequence[str]) -> str:
    """Render a page that needs no network and runs nothing: a column a night, a row a stage; all in it is escaped.

    Args:
        nights: the oldest first.
        damaged: what could not be read, a sentence each.
    """
    environment = templates(Path(__file__).parent)
    environment.filters |= {"of": count}
    seen = {stage for _, stage in cells_in(nights)}
    return environment.get_template(TEMPLATE).render(
        nights=nights,
        changed=[False, *(a.commit != b.commit for a, b in pairwise(nights))],
        every_date=EVERY_DATE,
        stages=[(stage, [_stage_verdict(night, stage) for night in nights]) for stage in STAGES if stage in seen],
        spells=spells(nights),
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
    """Return of each night its share of the greatest median, the verdict, and both in words."""
    most_ms = max(one.quantities[quantity].median_ms for _, one in timed) or 1.0
    return [
        (
            one.quantities[quantity].median_ms / most_ms,
            one.verdicts.get(quantity, "") + " accepted" * (quantity in one.accepted),
            times_in(night, one, quantity),
        )
        for night, one in timed
    ]


def _spells_of(letters: Sequence[tuple[int, str]]) -> Iterator[tuple[int, int, int]]:
    """Yield each spell: its last right night, or -1; its first wrong one; the next right one, or how many there are."""
    good, first = -1, None
    for k, letter in letters:
        if letter == WRONG and first is None:
            first = k
        elif letter and letter in RIGHT:
            if first is not None:
                yield good, first, k
            good, first = k, None
    if first is not None:
        yield good, first, len(letters)


def _cases(cells: Sequence[Cell]) -> str:
    named = list(dict.fromkeys(case for case, _ in cells))
    return listed([case or NO_CASE for case in named], 2) if len(named) <= 2 else count(len(named), "case")
