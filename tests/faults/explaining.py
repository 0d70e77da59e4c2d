"""Of each planted mistake, what a process without it says explains the first divergence."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

from pytest_dsocr.explain.asking import question_of
from pytest_dsocr.explain.explainer import Explainer
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.foundation.process import progress_bar
from pytest_dsocr.subjects.protocol import Setup
from tests.checkout import CHECKOUT
from tests.faults.all import FAULTS
from tests.faults.matrix import MATRIX, known
from tests.faults.pool import as_they_end, cost
from tests.faults.trial import held_where_found

EXPLAINED = Path(__file__).with_name("explained.json")
PAGE = CHECKOUT / "docs" / "explained.md"
BUDGET_S = 120
"""Longer than a run's own, as two are tried at a time."""
HEAD = """# What explains planted mistakes

Written by `python -m tests.faults explain`. Where a page of `dev-3` shows a mistake of [faults.md](faults.md), a
process of its own, with the session as it is, computes the stage that broke again under one what-if after the other
([verdicts.md](verdicts.md#what-explains-a-failure)). The what-ifs do not know the planted mistakes, and neither room
imports the other. *Proven* is what gives what the subject gave, to the bit or within rounding; *in part* what only
comes much nearer.

Many of these mistakes were looked at while the what-ifs were written, so that the share of all says little of mistakes
to come; those whose ids begin with HLD were not.
"""


@dataclass(frozen=True)
class Told:
    """What was said of one mistake."""

    fault: str
    text: str
    is_proven: bool


@cache
def _explainer() -> Explainer:
    """One process for each of the pool's, which begins before a mistake is planted."""
    return Explainer(Setup(), BUDGET_S)


def explain_fault(name: str) -> Told:
    """Plant a mistake, hold the page that shows it, and ask."""
    report = held_where_found(name)
    question = question_of(report, BUDGET_S) if report else None
    found = _explainer().answered(question) if question else None
    if found is None:
        return Told(name, "", False)
    return Told(name, found.text, found.is_proven)


def run_explained(names: Sequence[str]) -> list[Told]:
    """Ask about these mistakes, or about all that pages show, and write what is said of each."""
    of_pages = [name for name, one in known(MATRIX).items() if one.killed and "::" not in one.first]
    asked = list(names) or of_pages
    rows = json.loads(EXPLAINED.read_text(encoding="utf-8")) if EXPLAINED.exists() else []
    found = {row["fault"]: Told(**row) for row in rows if row["fault"] in of_pages}
    started = time.monotonic()
    with progress_bar(total=len(asked), unit="mistake") as bar:
        for told in as_they_end(partial(explain_fault, name) for name in asked):
            found[told.fault] = told
            _write([found[name] for name in FAULTS if name in found])
            bar.update()
            bar.write(f"{told.fault:<9} {told.text or 'nothing was tried'}")
    sys.stdout.write(f"{len(asked)} mistakes in {cost(started)}\n")
    return [found[name] for name in asked if name in found]


def _write(told: Sequence[Told]) -> None:
    """Write what was said, and its page."""
    write_whole(EXPLAINED, (json.dumps([asdict(one) for one in told], indent=1, ensure_ascii=False) + "\n").encode())
    write_whole(PAGE, page(told).encode())


def page(told: Sequence[Told]) -> str:
    """Give the page: how many are explained, and a row for each."""
    proven = [one for one in told if one.is_proven]
    part = [one for one in told if one.text.startswith("in part")]
    lines = [
        HEAD,
        f"- asked about: {len(told)} mistakes, those that pages show",
        f"- proven: {len(proven)}, {len(proven) / max(len(told), 1):.1%}",
        f"- of those whose ids begin with HLD, which were not looked at: {sum(map(_is_held_out, proven))} of "
        f"{sum(map(_is_held_out, told))}",
        f"- in part: {len(part)}",
        f"- none: {len(told) - len(proven) - len(part)}",
        "\n| mistake | | explained |\n| --- | --- | --- |",
        *(f"| {one.fault} | {_cell(FAULTS[one.fault].title)} | {_cell(one.text) or '-'} |" for one in told),
    ]
    return "\n".join(lines) + "\n"


def _is_held_out(one: Told) -> bool:
    return one.fault.startswith("HLD")


def _cell(text: str) -> str:
    return re.sub(r"([<>|\\*_])", r"\\\1", " ".join(text.split()))
