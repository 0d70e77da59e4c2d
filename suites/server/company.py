"""Checks that an answer does not depend on pages that are read before it or at the same time."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_dsocr.compare.verdict import Comparison

from .asked import MANY, NO_TEXT, Asked, apart, judged, not_offered

if TYPE_CHECKING:
    from pytest_dsocr.records.case import Case

LONG = 200
CHECK = "prefix caches, padding, and rows of a batch, which may mix requests"


def in_turn(asked: Asked) -> Comparison:
    """Read each page twice, then each after another page; two pages of one size must give different texts.

    The run's pages are read past :data:`LONG` tokens, where a ring that is kept from the first reading shows.
    """
    pages = [*asked.short, *asked.cases]
    twice = [page for page in pages for _ in range(2)]
    compared = _compared(asked, "in_turn", [[page] for page in (*twice, *pages)], LONG)
    one, other = (asked(asked.odd[name]).text for name in ("plain", "blank"))
    return judged("in_turn", ["two pages of one size give one text"], "", CHECK) if one and one == other else compared


def at_once(asked: Asked) -> Comparison:
    """Read four pages at the same time, then one page four times at once."""
    return _compared(asked, "at_once", [asked.short, asked.short[:1] * 4])


def beside_a_long_one(asked: Asked) -> Comparison:
    """Read short pages while a long one is read."""
    return _compared(asked, "beside_a_long_one", [[asked.first, *asked.short]], LONG)


def _compared(asked: Asked, what: str, groups: Sequence[Sequence[Case]], longest: int = MANY) -> Comparison:
    """Read one group after the other, the pages of a group at the same time, and compare each with the page alone."""
    from pytest_dsocr.subjects.calls import at_stage

    faults, made = list[str](), 0
    for group in groups:
        ceilings = [longest, *(MANY for _ in group[1:])]
        alone = [asked(case, most) for case, most in zip(group, ceilings, strict=True)]
        cases = [replace(case, max_new_tokens=most) for case, most in zip(group, ceilings, strict=True)]
        with at_stage("read", "ask"), ThreadPoolExecutor(len(group)) as threads:
            answers = [*threads.map(asked.server.ask, cases)]
        for case, answer, expected in zip(cases, answers, alone, strict=True):
            faults, made = [*faults, *apart(case.id, answer, expected)], made + bool(expected.text.strip())
    if not faults and not made:
        return not_offered(what, NO_TEXT)
    return judged(what, faults, f"{made} answers equal those of the page alone", CHECK)
