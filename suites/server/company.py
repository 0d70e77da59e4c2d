"""Whether an answer depends on the pages that are read before it or beside it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_dsocr.compare.verdict import Comparison

from .asked import MANY, Asked, apart, judged

if TYPE_CHECKING:
    from pytest_dsocr.adapters.chat import Completion
    from pytest_dsocr.observation.case import Case

LONG = 200
CHECK = "what the server keeps of other requests: prefix caches, padding, rows of a batch"
Asking = tuple["Case", int]
"""A page, and the ceiling of its tokens."""


def in_turn(asked: Asked) -> Comparison:
    """Read each page behind itself, then each behind another."""
    pages = [(case, MANY) for case in (*asked.short, asked.first)]
    twice = [page for page in pages for _ in range(2)]
    compared = _compared(asked, "in_turn", [[page] for page in (*twice, *pages)])
    one, other = (asked(asked.odd[name]).text for name in ("plain", "repeated"))
    return judged("in_turn", ["two pages of one size are read alike"], "", CHECK) if one == other else compared


def at_once(asked: Asked) -> Comparison:
    """Read four pages at the same time, and one of them four times."""
    pages = [(case, MANY) for case in asked.short]
    return _compared(asked, "at_once", [pages, pages[:1] * len(pages)])


def beside_a_long_one(asked: Asked) -> Comparison:
    """Read short pages while a long one is read."""
    return _compared(asked, "beside_a_long_one", [[(asked.first, LONG), *((case, MANY) for case in asked.short)]])


def _compared(asked: Asked, what: str, groups: Sequence[Sequence[Asking]]) -> Comparison:
    """Read groups behind each other, the pages of a group at the same time, and compare each with the page alone."""
    alone = {page: asked(*page) for group in groups for page in group}
    faults, made = list[str](), 0
    for group in groups:
        for page, answer in zip(group, _together(asked, group), strict=True):
            faults, made = [*faults, *apart(page[0].id, answer, alone[page])], made + 1
    return judged(what, faults, f"{made} answers as the page alone", CHECK)


def _together(asked: Asked, group: Sequence[Asking]) -> list[Completion]:
    from pytest_dsocr.subjects.calls import at_stage

    cases = [replace(case, max_new_tokens=most) for case, most in group]
    with at_stage("read", "ask"), ThreadPoolExecutor(len(group)) as threads:
        return [*threads.map(asked.server.ask, cases)]
