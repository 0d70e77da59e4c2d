"""Every mistake tried, two at a time; what is found is kept as it comes, so that a run that was ended goes on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path

from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.foundation.process import progress_bar
from tests.checkout import CHECKOUT
from tests.faults.all import FAULTS
from tests.faults.outcome import Outcome
from tests.faults.pool import as_they_end, cost
from tests.faults.table import table
from tests.faults.trial import try_fault

MATRIX = Path(__file__).with_name("matrix.json")
PAGE = CHECKOUT / "docs" / "faults.md"
PARTS = CHECKOUT / "dsocr-out" / "faults"


def run_matrix(names: Sequence[str], *, suites: bool) -> list[Outcome]:
    """Try these mistakes, or all of them, and write the matrix and its page; give what was found of those tried.

    Each is looked for first where the matrix has it, and everywhere where it is not there any more. A run of all goes
    on where one that was ended stopped, if no code has changed since then.
    """
    part = PARTS / f"{_state(suites)}.jsonl"
    found = known() if names else _begun(part)
    left = list(names) or [name for name in FAULTS if name not in found]
    started = time.monotonic()
    with progress_bar(total=len(names or FAULTS), initial=len(names or FAULTS) - len(left), unit="mistake") as bar:
        for outcome in _tried(left, suites):
            found[outcome.fault] = outcome
            if names:
                _write(found)
            else:
                _add(part, outcome)
            bar.update()
            bar.write(told(outcome))
    _write(found)
    part.unlink(missing_ok=True)
    sys.stdout.write(f"{len(left)} mistakes in {cost(started)}\n")
    return [found[name] for name in names or FAULTS]


def told(outcome: Outcome) -> str:
    """Say in a line what was found of a mistake."""
    if not outcome.killed:
        return f"{outcome.fault:<9} survives"
    marks = ("stage right" if outcome.stage_right else "stage WRONG", "hint right" if outcome.hint_right else "no hint")
    return f"{outcome.fault:<9} found by {outcome.by}, {outcome.first}: {', '.join(marks)}"


def _write(found: Mapping[str, Outcome]) -> None:
    """Write the matrix and its page."""
    outcomes = [found[name] for name in FAULTS if name in found]
    write_whole(MATRIX, (json.dumps([one.to_json() for one in outcomes], indent=1, ensure_ascii=False) + "\n").encode())
    write_whole(PAGE, table(outcomes).encode())


def _tried(names: Sequence[str], suites: bool) -> Iterator[Outcome]:
    before = known()
    yield from as_they_end(partial(try_fault, name, suites=suites, before=before.get(name)) for name in names)


def known(path: Path = MATRIX) -> dict[str, Outcome]:
    """Give what was found of each mistake when it was last tried."""
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return {row["fault"]: Outcome(**row) for row in rows}


def _begun(part: Path) -> dict[str, Outcome]:
    lines = part.read_text(encoding="utf-8").splitlines() if part.exists() else []
    return {row["fault"]: Outcome(**row) for row in map(json.loads, lines)}


def _add(part: Path, outcome: Outcome) -> None:
    part.parent.mkdir(parents=True, exist_ok=True)
    with part.open("a", encoding="utf-8") as file:
        file.write(json.dumps(outcome.to_json(), ensure_ascii=False) + "\n")


def _state(suites: bool) -> str:
    """Give a name for the code as it stands: what was found with other code is of no use."""
    every = sorted(path for folder in ("pytest_dsocr", "suites") for path in (CHECKOUT / folder).rglob("*.py"))
    content = b"".join(sha256(path.read_bytes()).digest() for path in every)
    return sha256(content + bytes([suites])).hexdigest()[:16]
