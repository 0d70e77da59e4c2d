"""The matrix as a page of documentation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.faults.all import FAULTS
from tests.faults.of_hints import Told, hints_told
from tests.faults.outcome import Outcome

HEAD = """# Known mistakes, planted

Written by `python -m tests.faults matrix`. Each mistake is planted in the session from outside; neither the
engine nor the wheel holds any, and what [explains](verdicts.md#what-explains-a-failure) a failure knows none of them.
It is held against the recordings of the pages `dev-3`, as a default run does; where all three pass, and anything could
show it, those suites of the contract, of the cache and of the second checkpoint are run as well that can see its stage.
*First* is where it begins to show: a comparison, or the first test that fails. The hint is right where its stage is and
it names the mistake, alone or among others.

Those whose ids begin with HLD were listed before the checks were read: [held-out.md](held-out.md) says what was found
of them then.

`python -m tests.faults show ID page.png` shows what one looks like on a page: the report, the hint, and the page
with the boxes of both sides in `dsocr-out/`. `python -m tests.faults gallery` makes a page of all of them.
"""
SHOWN_CHARACTERS = 90


def table(outcomes: Sequence[Outcome]) -> str:
    """Give the page: the totals, the survivors, what went wrong, a row for each mistake, and one for each hint."""
    killed = [one for one in outcomes if one.killed]
    survivors = [one for one in outcomes if not one.killed]
    equivalent = [one for one in survivors if FAULTS[one.fault].equivalent]
    of_pages = [one for one in killed if "/" not in one.by]
    shown = len(outcomes) - len(equivalent)
    lines = [
        HEAD,
        f"- planted: {len(outcomes)} of {len(FAULTS)}, of which nothing can show {len(equivalent)}",
        f"- found: {len(killed)} of the other {shown}, {len(killed) / max(shown, 1):.1%}: by the pages "
        f"{len(of_pages)}, by the suites alone {len(killed) - len(of_pages)}",
        _share("the stage right", [one.stage_right for one in killed]),
        _share("the hint right", [one.hint_right for one in killed]),
        "\n## Survivors\n",
        "| mistake | | shown by | why it is not found |\n| --- | --- | --- | --- |",
        *(_survivor(one) for one in survivors),
        "\n## Told wrongly\n",
        "| mistake | | stage | first | what was said |\n| --- | --- | --- | --- | --- |",
        *(_told_wrongly(one) for one in killed if not one.hint_right),
        "\n## All\n",
        "| mistake | | stage | first | by | stage | hint |\n| --- | --- | --- | --- | --- | --- | --- |",
        *(_row(one) for one in outcomes),
        "\n## What finds them first\n",
        "| | mistakes |\n| --- | --- |",
        *(f"| {what} | {count} |" for what, count in _finders(killed)),
        "\n## Hints\n",
        "What no mistake here led to is for what is not planted: other dtypes, text alone, no modules.\n",
        "| at | hint | right for | misled on |\n| --- | --- | --- | --- |",
        *(_hint(told) for told in hints_told(outcomes)),
    ]
    return "\n".join(lines) + "\n"


def _share(what: str, right: Sequence[bool]) -> str:
    return f"- of those found, {what}: {sum(right)} of {len(right)}, {sum(right) / max(len(right), 1):.1%}"


def _finders(killed: Sequence[Outcome]) -> Iterator[tuple[str, int]]:
    """Yield what found mistakes first, blocks and layers under one name, and how many."""
    names = (one.first.partition("/")[0] if "::" not in one.first else one.first.partition("[")[0] for one in killed)
    yield from Counter(names).most_common()


def _survivor(one: Outcome) -> str:
    fault = FAULTS[one.fault]
    why = fault.unseen or (
        "changes what is compared, within the limits" if one.changed else "changes nothing that is compared"
    )
    return f"| {one.fault} | {cell(fault.title)} | {fault.page} | {why} |"


def _told_wrongly(one: Outcome) -> str:
    fault, said = FAULTS[one.fault], one.hint[:SHOWN_CHARACTERS]
    return f"| {one.fault} | {cell(fault.title)} | {fault.stage} | {cell(one.first)} | {cell(said)} |"


def _row(one: Outcome) -> str:
    fault = FAULTS[one.fault]
    told = [one.first or "-", one.by or "-", _mark(one.stage_right), _mark(one.hint_right)]
    return f"| {one.fault} | {cell(fault.title)} | {fault.stage} | {' | '.join(map(cell, told))} |"


def _hint(told: Told) -> str:
    words = cell(told.symptom.cause)[:SHOWN_CHARACTERS]
    return f"| {told.symptom.at} | {words} | {' '.join(told.right) or '-'} | {' '.join(told.misled) or '-'} |"


def _mark(right: bool) -> str:
    return "right" if right else "-"


def cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
