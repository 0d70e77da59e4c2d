"""What went wrong when, what is wrong still, and what flips at the same commit; for the terminal, and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pytest_dsocr.foundation.words import HASH_CHARACTERS, count, entry, listed
from pytest_dsocr.night.record import RIGHT, STAGES, WRONG, Night

NO_CASE = "of no page"
UNSTEADY = 3
"""Changes between right and wrong from which on a cell is called unsteady, whatever the commits were."""
MOST = 20
Cell = tuple[str, str]
"""Case and stage."""


@dataclass(frozen=True)
class Spell:
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


class Flip(NamedTuple):
    """A stage that had two verdicts though nothing was changed, or that changes time and again."""

    stage: str
    commit: str
    """Of all these nights; empty where it is only called unsteady."""
    right: int
    wrong: int
    machines: tuple[str, ...]
    """On which it was wrong."""

    def of(self, cells: Sequence[Cell]) -> str:
        """Return it as a sentence on the cells that it is true of."""
        where = f"at the same commit {self.commit[:HASH_CHARACTERS]}" if self.commit else "changing time and again"
        on = f"; wrong on {listed(self.machines, 2)}" if any(self.machines) else ""
        return f"{self.stage} of {_cases(cells)}: right in {self.right}, wrong in {self.wrong} nights {where}{on}"


def spells(nights: Sequence[Night]) -> list[Spell]:
    """Return every spell of wrong nights, those that go on first, then the latest first.

    A night that did not compare a cell says nothing of it.
    """
    found: dict[tuple[int, int, int], list[Cell]] = {}
    for cell in cells_in(nights):
        for times in _spells_of([(k, letter_of(night, cell)) for k, night in enumerate(nights)]):
            found.setdefault(times, []).append(cell)
    made = [
        Spell(
            nights[good] if good >= 0 else None,
            nights[first],
            nights[mended] if mended < len(nights) else None,
            tuple(sorted(cells, key=lambda cell: (STAGES.index(cell[1]), cell[0]))),
        )
        for (good, first, mended), cells in found.items()
    ]
    return sorted(sorted(made, key=lambda one: one.first.started, reverse=True), key=lambda one: one.mended is not None)


def flips(nights: Sequence[Night]) -> dict[Flip, list[Cell]]:
    """Return what a commit left both right and wrong, and what changes time and again, each with its cells."""
    found: dict[Flip, list[Cell]] = {}
    for cell in cells_in(nights):
        judged = [(night, letter in RIGHT) for night in nights if (letter := letter_of(night, cell)) in (*RIGHT, WRONG)]
        by_code: dict[tuple[str, str, str], list[tuple[Night, bool]]] = {}
        for night, is_right in judged:
            if night.commit and not night.commit.endswith("-dirty"):
                by_code.setdefault((night.commit, night.subject, night.setting), []).append((night, is_right))
        here = [(code[0], same) for code, same in by_code.items() if len({is_right for _, is_right in same}) == 2]
        if not here and sum(a != b for (_, a), (_, b) in pairwise(judged)) >= UNSTEADY:
            here = [("", judged)]
        for commit, same in here:
            wrong = [night for night, is_right in same if not is_right]
            machines = tuple(dict.fromkeys(one.machine for one in wrong))
            found.setdefault(Flip(cell[1], commit, len(same) - len(wrong), len(wrong), machines), []).append(cell)
    return found


def cells_in(nights: Sequence[Night]) -> list[Cell]:
    """Return every case and stage that any night judged, by case as it came, by stage as the data flows."""
    found = {(case, stage): None for night in nights for case, stages in night.cells.items() for stage in stages}
    cases = list(dict.fromkeys(case for case, _ in found))
    return sorted(found, key=lambda cell: (cases.index(cell[0]), STAGES.index(cell[1])))


def letter_of(night: Night, cell: Cell) -> str:
    """Return a night's letter of a cell; nothing where it has none."""
    return night.cells.get(cell[0], {}).get(cell[1], "")


def lines(nights: Sequence[Night], damaged: Sequence[str]) -> Iterator[str]:
    """Yield the nights for a terminal: what broke, what flips, and how the last one ended."""
    if nights:
        first, last = nights[0], nights[-1]
        days = f"{first.day} to {last.day}"
        yield from entry("nights", f"{len(nights)}, {days}; {last.subject or 'no subject'} {last.setting}".strip())
        for spell in spells(nights)[:MOST]:
            yield from entry("still wrong" if spell.mended is None else "was wrong", str(spell), 6)
        for flip, cells in [*flips(nights).items()][:MOST]:
            yield from entry("flips" if flip.commit else "unsteady", flip.of(cells))
        flaky = dict.fromkeys(test for night in nights for test in night.flaky)
        if flaky:
            yield from entry("flaky", f"passed only when run again: {listed([*flaky])}")
        yield from entry("last night", f"{last.at}: {last.verdict}")
    yield from (f"problem         {why}" for why in damaged)


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
