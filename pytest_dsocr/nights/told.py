"""Many nights in words and in letters: what went wrong when, what flips; for the terminal, and for the page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_dsocr.foundation.words import MARGIN, count, entry, in_shell, listed
from pytest_dsocr.nights.cells import RIGHT, STAGES, gravest
from pytest_dsocr.nights.drawing import NO_CASE
from pytest_dsocr.nights.record import Night
from pytest_dsocr.nights.spells import Flip, Spell, cells_in, flips, letter_of, spells

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
    why = spell.told
    shown = f"; {why.what}: {why.measured}" + (f"; check {why.cause}" if why.cause else "") if why else ""
    return f"first bad {spell.first.at}: {what}; {good}{until}{shown}"


def of_flip(flip: Flip) -> str:
    """Say what has had two verdicts."""
    where = f"at the same commit {flip.commit[:12]}" if flip.commit else "changing time and again"
    on = f"; wrong on {listed(flip.machines, 2)}" if any(flip.machines) else ""
    return f"{flip.stage} of {_cases(flip.cases)}: right in {flip.right}, wrong in {flip.wrong} nights {where}{on}"


def bisection(spell: Spell) -> str:
    """Give the command that looks for the first bad commit; nothing where there is only one, or none is known."""
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
