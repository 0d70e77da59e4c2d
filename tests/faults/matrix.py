"""Mistake after mistake tried, two at a time, and a table of what was found."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import torch

from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.foundation.process import progress_bar
from tests.faults.outcome import Fault, Outcome, of_catalogue, of_exam
from tests.faults.trial import try_fault

CATALOGUE = "catalogue"
HEAD = """# What a default run says of {what}

Each mistake is planted in the session and held against the recordings of the pages `dev-3`; where all three pass, the
suites that can see its stage are run. *Proven* is what gives what the session gave, computed without the mistake.

"""


def faults_of(source: str, ids: tuple[str, ...] = ()) -> Mapping[str, Fault]:
    """Return the mistakes of the catalogue or of a set of the exam, or those of these ids."""
    if source == CATALOGUE:
        return of_catalogue(ids)
    every = of_exam(source)
    return {name: every[name] for name in ids or every}


def run(source: str, faults: Mapping[str, Fault], out: Path, *, suites: bool, explain: bool) -> list[Outcome]:
    """Try the mistakes, two at a time; write ``out.md`` and ``out.json`` as they come, and return what was found."""
    found: dict[str, Outcome] = {}
    out.parent.mkdir(parents=True, exist_ok=True)
    with progress_bar(total=len(faults), unit="mistake") as bar:
        for outcome in _tried(source, [*faults], suites, explain):
            found[outcome.fault] = outcome
            outcomes = [found[name] for name in faults if name in found]
            rows = json.dumps([asdict(one) for one in outcomes], indent=1, ensure_ascii=False)
            write_whole(out.with_suffix(".json"), f"{rows}\n".encode())
            write_whole(out.with_suffix(".md"), table(faults, outcomes, out.name).encode())
            bar.update()
            bar.write(in_words(outcome))
    sys.stdout.write("\n".join(totals(faults, outcomes)) + "\n")
    return outcomes


def _tried(source: str, names: Sequence[str], suites: bool, explain: bool) -> Iterator[Outcome]:
    """Try mistakes in two processes of one thread each: torch's further threads would not outlive a fork."""
    single = partial(torch.set_num_threads, 1)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=single) as processes:
        trials = [processes.submit(_try, source, name, suites, explain) for name in names]
        try:
            for trial in as_completed(trials):
                yield trial.result()
        finally:
            processes.shutdown(cancel_futures=True)


def _try(source: str, name: str, suites: bool, explain: bool) -> Outcome:
    """Try a mistake; an error of the trial itself is told in its row, and the others go on."""
    try:
        return try_fault(faults_of(source, (name,))[name], suites=suites, explain=explain)
    except Exception as error:
        return Outcome(name, False, first="the trial failed", hint=repr(error))


def in_words(one: Outcome) -> str:
    """Say in a line what was found of a mistake."""
    if not one.killed:
        return f"{one.fault:<9} survives"
    stage = "stage right" if one.stage_right else "stage WRONG"
    proof = "named" if one.named else "proven" if one.proven else "not explained"
    return f"{one.fault:<9} found by {one.by}, {one.first}: {stage}, {proof}"


def totals(faults: Mapping[str, Fault], outcomes: Sequence[Outcome]) -> list[str]:
    """Count what was found."""
    killed = [one for one in outcomes if one.killed]
    asked = [one for one in killed if one.explained]
    unseen = sum(bool(faults[one.fault].unseen) for one in outcomes)
    return [
        f"- planted: {len(outcomes)}, of which a default run cannot show {unseen}",
        f"- found: {len(killed)}, by the pages {sum('::' not in one.first for one in killed)}",
        f"- of those found, the stage right: {sum(one.stage_right for one in killed)}",
        f"- asked what explains it: {len(asked)}; proven {sum(one.proven for one in asked)}, of these by the mistake "
        f"itself {sum(one.named for one in asked)}",
    ]


def table(faults: Mapping[str, Fault], outcomes: Sequence[Outcome], what: str) -> str:
    """Write the page: the totals, and a row for each mistake."""
    rows = ["| mistake | | stage | first | by | stage | hint | explained |", "| --- " * 8 + "|"]
    for one in outcomes:
        fault = faults[one.fault]
        right = ("right" if one.stage_right else "WRONG") if one.killed else fault.unseen or "SURVIVES"
        cells = (one.fault, fault.title, fault.stage, one.first, one.by, right, one.hint, one.explained)
        rows.append(f"| {' | '.join(' '.join(cell.replace('|', '/').split()) or '-' for cell in cells)} |")
    return HEAD.format(what=what) + "\n".join([*totals(faults, outcomes), "", *rows]) + "\n"
