"""One half of the held-out set tried: a table of what is said of each mistake, whose hints a person then judges."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.foundation.process import progress_bar
from tests.faults.all import HALVES
from tests.faults.outcome import Outcome
from tests.faults.pool import cost, pool
from tests.faults.table import cell
from tests.faults.trial import try_fault

HEAD = """# What a default run says of the {name}

Written by `python -m tests.faults held-out {name}`. The column of the hint is for a person: *yes* where it names
what was done wrong, alone or among others; *partly* where it names the part and not the mistake; *no* where it leads
elsewhere.

found: {found} of {all}; of these the stage is right for {right}

| mistake | title | cause | page that shows it | its stage | first | by | stage | hint | what was said |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""


def try_half(name: str, out: Path) -> Path:
    """Try every mistake of a half, two at a time; write the table, as far as it is known, and give its file."""
    started = time.monotonic()
    found: list[Outcome] = []
    path = out / f"{name}.md"
    out.mkdir(parents=True, exist_ok=True)
    with pool() as processes, progress_bar(total=len(HALVES[name]), unit="mistake") as bar:
        for outcome in processes.map(_tried, HALVES[name]):
            found.append(outcome)
            bar.update()
            write_whole(path, _table(name, found).encode())
    sys.stdout.write(f"{len(found)} mistakes in {cost(started)}\n")
    return path


def _tried(name: str) -> Outcome:
    """Try a mistake; an error of the trial itself is told in its row, and the others go on."""
    try:
        return try_fault(name)
    except Exception as error:
        return Outcome(name, False, first="the trial failed", hint=repr(error))


def _table(name: str, outcomes: Sequence[Outcome]) -> str:
    killed = [one for one in outcomes if one.killed]
    right = sum(one.stage_right for one in killed)
    head = HEAD.format(name=name, found=len(killed), all=len(outcomes), right=right)
    return head + "".join(_row(name, one) for one in outcomes)


def _row(name: str, one: Outcome) -> str:
    fault = HALVES[name][one.fault]
    stage = ("right" if one.stage_right else "wrong") if one.killed else ""
    cells = (
        one.fault,
        fault.title,
        fault.cause,
        fault.page,
        fault.stage,
        one.first or "not found",
        one.by,
        stage,
        "",
        one.hint,
    )
    return f"| {' | '.join(map(cell, cells))} |\n"
