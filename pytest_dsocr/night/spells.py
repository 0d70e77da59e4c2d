"""What went wrong when, what is wrong still, and what flips at the same commit; for the terminal, and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pytest_dsocr.foundation.words import MARGIN, count, entry, in_shell, listed
from pytest_dsocr.night.record import RIGHT, STAGES, WRONG, Night, Wrong, gravest

NO_CASE = "of no page"
UNSTEADY = 3
"""Changes between right and wrong from which on a cell is called unsteady, whatever the commits were."""
Cell = tuple[str, str]


@dataclass(frozen=True)
class Spell:
    """Cells that went wrong in the same night, and were right again in the same, if they were."""

    good: Night | None
    """The last night before in which they were right; None where they never were."""
    first: Night
    """The first bad one."""
    mended: Night | None
    cells: tuple[Cell, ...]
    """Case and stage, in the order of the data."""

    @property
    def stages(self) -> list[str]:
        """Of the cells, in the order of the data."""
        return sorted({stage for _, stage in self.cells}, key=STAGES.index)

    @property
    def cases(self) -> list[str]:
        """Of the cells."""
        return list(dict.fromkeys(case for case, _ in self.cells))

    @property
    def reason(self) -> Wrong | None:
        """What the first bad night says of the first stage of these."""
        wrong = [one for one in self.first.wrong if (one.case, one.stage) in self.cells]
        return min(wrong, key=lambda one: STAGES.index(one.stage), default=None)

    @property
    def can_be_bisected(self) -> bool:
        """Whether two commits are known between which it went wrong."""
        good = self.good.commit if self.good else ""
        return bool(good and self.first.commit and good != self.first.commit) and "-" not in good + self.first.commit


@dataclass(frozen=True)
class Flip:
    """Cases that had two verdicts in a stage though nothing was changed, or that change time and again."""

    cases: tuple[str, ...]
    stage: str
    commit: str
    """Of all these nights; empty where they are only called unsteady."""
    right: int
    wrong: int
    machines: tuple[str, ...]
    """On which it was wrong."""


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


def flips(nights: Sequence[Night]) -> list[Flip]:
    """Return the cells that a commit left both right and wrong, and those that change time and again."""
    found: dict[Flip, list[str]] = {}
    for cell in cells_in(nights):
        judged = [(night, letter_of(night, cell)) for night in nights]
        judged = [(night, letter) for night, letter in judged if letter and letter in RIGHT + WRONG]
        here = [*_at_one_commit(cell, judged)]
        changes = sum((a[1] in RIGHT) != (b[1] in RIGHT) for a, b in pairwise(judged))
        if not here and changes >= UNSTEADY:
            here = [_flip(cell, "", judged)]
        for flip in here:
            found.setdefault(replace(flip, cases=()), []).append(cell[0])
    return [replace(flip, cases=tuple(cases)) for flip, cases in found.items()]


def cells_in(nights: Sequence[Night]) -> list[Cell]:
    """Return every case and stage that any night judged, by case as it came, by stage as the data flows."""
    found = {(case, stage): None for night in nights for case, stages in night.cells.items() for stage in stages}
    cases = list(dict.fromkeys(case for case, _ in found))
    return sorted(found, key=lambda cell: (cases.index(cell[0]), STAGES.index(cell[1])))


def letter_of(night: Night, cell: Cell) -> str:
    """Return a night's letter of a cell; nothing where it has none."""
    return night.cells.get(cell[0], {}).get(cell[1], "")


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


def _at_one_commit(cell: Cell, judged: Sequence[tuple[Night, str]]) -> Iterator[Flip]:
    by_code: dict[tuple[str, str, str], list[tuple[Night, str]]] = {}
    for night, letter in judged:
        if night.commit and not night.commit.endswith("-dirty"):
            by_code.setdefault((night.commit, night.subject, night.setting), []).append((night, letter))
    for (commit, *_), same in by_code.items():
        if {letter in RIGHT for _, letter in same} == {True, False}:
            yield _flip(cell, commit, same)


def _flip(cell: Cell, commit: str, judged: Sequence[tuple[Night, str]]) -> Flip:
    wrong = [night for night, letter in judged if letter == WRONG]
    return Flip(
        (cell[0],),
        cell[1],
        commit,
        len(judged) - len(wrong),
        len(wrong),
        tuple(dict.fromkeys(one.machine for one in wrong)),
    )


MOST_NIGHTS, MOST = 90, 20
GLYPHS = {"M": ".", "D": "~", "T": "t", "W": "X", "N": "-", "I": "!", "": " "}
OF_WORD = {"passes": ".", "wrong": "X", "machine": "!", "slower": "s", "incomplete": "-"}
LEGEND = ". MATCH  ~ DRIFT  t TIE-FLIP  X WRONG  - not compared  ! the machine  s slower"


def lines(nights: Sequence[Night], damaged: Sequence[str]) -> Iterator[str]:
    """Yield the nights for a terminal: a letter for each night in each row, then what broke and what flips."""
    if nights:
        first, last = nights[0], nights[-1]
        days = f"{first.day} to {last.day}"
        yield from entry("nights", f"{len(nights)}, {days}; {last.subject or 'no subject'} {last.setting}".strip())
        yield from _grid(nights[-MOST_NIGHTS:])
        yield f"{'':<{MARGIN}}{LEGEND}"
        for spell in spells(nights)[:MOST]:
            yield from entry("still wrong" if spell.mended is None else "was wrong", of_spell(spell), 6)
            if command := bisection(spell):
                yield f"{'':<{MARGIN}}{command}"
        for flip in flips(nights)[:MOST]:
            yield from entry("flips" if flip.commit else "unsteady", of_flip(flip))
        flaky = dict.fromkeys(test for night in nights for test in night.flaky)
        if flaky:
            yield from entry("flaky", f"passed only when run again: {listed([*flaky])}")
        yield from entry("last night", f"{last.at}: {last.verdict}")
    yield from (f"problem         {why}" for why in damaged)


def of_spell(spell: Spell) -> str:
    """Say what went wrong, when, and until when."""
    what = f"{listed(spell.stages)} of {_cases(spell.cases)}"
    good = f"last right {spell.good.at}" if spell.good else "never right before"
    until = f", right again {spell.mended.at}" if spell.mended else ""
    why = spell.reason
    shown = f"; {why.what}: {why.measured}" + (f"; check {why.cause}" if why.cause else "") if why else ""
    return f"first bad {spell.first.at}: {what}; {good}{until}{shown}"


def of_flip(flip: Flip) -> str:
    """Say what has had two verdicts."""
    where = f"at the same commit {flip.commit[:12]}" if flip.commit else "changing time and again"
    on = f"; wrong on {listed(flip.machines, 2)}" if any(flip.machines) else ""
    return f"{flip.stage} of {_cases(flip.cases)}: right in {flip.right}, wrong in {flip.wrong} nights {where}{on}"


def bisection(spell: Spell) -> str:
    """Return the command that looks for the first bad commit; nothing where there is only one, or none is known."""
    if not (spell.can_be_bisected and spell.good):
        return ""
    stage = spell.stages[0]
    words = ["dsocr", "bisect", spell.good.commit[:12], spell.first.commit[:12], f"--stage={stage}"]
    return in_shell([*words, f"--subject={spell.first.subject}"] if spell.first.subject else words)


def _cases(named: Sequence[str]) -> str:
    return listed([case or NO_CASE for case in named], 2) if len(named) <= 2 else count(len(named), "case")


def _grid(nights: Sequence[Night]) -> Iterator[str]:
    yield f"{'':<{MARGIN}}{''.join(OF_WORD.get(night.word, '?') for night in nights)}"
    cells = cells_in(nights)
    for stage in [one for one in STAGES if any(stage == one for _, stage in cells)]:
        of_stage = [cell for cell in cells if cell[1] == stage]
        letters = [gravest(filter(None, (letter_of(night, cell) for cell in of_stage))) for night in nights]
        yield f"{stage:<{MARGIN}}{''.join(GLYPHS[letter] for letter in letters)}"
    for case in dict.fromkeys(case for case, _ in cells):
        letters = [gravest(night.cells.get(case, {}).values()) for night in nights]
        if any(letter and letter not in RIGHT for letter in letters):
            yield f"{'':<{MARGIN}}{''.join(GLYPHS[letter] for letter in letters)}  {case or NO_CASE}"
