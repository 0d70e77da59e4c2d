"""One page over all nights, which needs no network and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_dsocr.foundation.files import templates
from pytest_dsocr.foundation.words import count
from pytest_dsocr.nights.cells import LETTERS, MACHINE, WORDS
from pytest_dsocr.nights.drawing import grid
from pytest_dsocr.nights.record import Night
from pytest_dsocr.nights.spells import flips, spells
from pytest_dsocr.nights.told import bisection, of_flip, of_spell
from pytest_dsocr.perf import history
from pytest_dsocr.perf.history import Series

TEMPLATE = "page.html.j2"


def html(nights: Sequence[Night], series: Sequence[Series], damaged: Sequence[str]) -> str:
    """Give the page; all that is told in it is escaped.

    Args:
        nights: the oldest first.
        series: times, of the nights and of other runs.
        damaged: what could not be read, a sentence each.
    """
    environment = templates(Path(__file__).parent, history.FOLDER)
    environment.filters |= {"of": count}
    return environment.get_template(TEMPLATE).render(
        nights=nights,
        grid=grid(nights) if nights else None,
        spells=[(one, of_spell(one), bisection(one)) for one in spells(nights)],
        flips=[of_flip(one) for one in flips(nights)],
        flaky=list(dict.fromkeys(test for night in nights for test in night.flaky)),
        legend=[(letter, WORDS[letter]) for letter in (*LETTERS.values(), MACHINE)],
        damaged=damaged,
        **history.drawn(series),
    )
