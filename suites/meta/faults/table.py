"""The matrix as a page of documentation."""

from __future__ import annotations

from collections.abc import Sequence

from suites.meta.faults.all import FAULTS
from suites.meta.faults.outcome import Outcome

HEAD = """# Known mistakes, planted

Written by `python -m suites.meta.faults`. Each mistake is planted in the session from outside; neither the engine nor
the wheel holds any. It is held against the recordings of the pages `dev-3`, as a default run does; where all three
pass, the contract suite or the cache suite is asked as well, but not with `--pages-only`. `first` is the first
comparison that is WRONG, or the first test that fails. The hint is right where its stage is and it names the mistake.
"""


def table(outcomes: Sequence[Outcome]) -> str:
    """Give the page: the totals, the survivors, and a row for each mistake."""
    killed = [one for one in outcomes if one.killed]
    of_pages = [one for one in killed if one.hint or "/" not in one.by]
    survivors = [one for one in outcomes if not one.killed]
    equivalent = [one for one in survivors if FAULTS[one.fault].equivalent]
    lines = [
        HEAD,
        f"- known: {len(FAULTS)}, not tried yet: {len(FAULTS) - len(outcomes)}",
        f"- planted: {len(outcomes)}, of which no page can show {len(equivalent)}",
        f"- found: {len(killed)}, by the pages {len(of_pages)}, by the suites alone {len(killed) - len(of_pages)}",
        f"- of those found by the pages, the stage right: {sum(one.stage_right for one in of_pages)}; "
        f"the hint right: {sum(one.hint_right for one in of_pages)}",
        "\n## Survivors\n",
        "| mistake | | shown by | |\n| --- | --- | --- | --- |",
        *(_survivor(one) for one in survivors),
        "\n## All\n",
        "| mistake | | stage | first | by | stage | hint |\n| --- | --- | --- | --- | --- | --- | --- |",
        *(_row(one) for one in outcomes),
    ]
    return "\n".join(lines) + "\n"


def _survivor(one: Outcome) -> str:
    fault = FAULTS[one.fault]
    why = fault.equivalent or (
        "changes what is compared, within the limits" if one.changed else "changes nothing there"
    )
    return f"| {one.fault} | {_cell(fault.title)} | {fault.page} | {why} |"


def _row(one: Outcome) -> str:
    fault = FAULTS[one.fault]
    told = [one.first or "-", one.by or "-", _mark(one.stage_right), _mark(one.hint_right)]
    return f"| {one.fault} | {_cell(fault.title)} | {fault.stage} | {' | '.join(map(_cell, told))} |"


def _mark(right: bool) -> str:
    return "right" if right else "-"


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
