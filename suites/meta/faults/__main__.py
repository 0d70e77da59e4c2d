"""``python -m suites.meta.faults [--pages-only] [ID ...]``: the matrix of mistakes, as JSON and as a table in ``docs``.

It is no command of ``dsocr``, for the wheel holds no mistake: it would have nothing to plant.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from suites.meta.faults.all import FAULTS
from suites.meta.faults.outcome import Outcome
from suites.meta.faults.table import table
from suites.meta.faults.trial import try_fault

MATRIX = Path(__file__).with_name("matrix.json")
PAGE = Path(__file__).parents[3] / "docs" / "faults.md"
PROCESSES = 2


def main(names: list[str], suites: bool) -> None:
    """Try the mistakes of these ids, or all, and write what was found over what is known of them."""
    found = {row["fault"]: Outcome(**row) for row in json.loads(MATRIX.read_text())} if MATRIX.exists() else {}
    with ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn")) as pool:
        trials = [pool.submit(try_fault, name, suites=suites) for name in names or FAULTS]
        for trial in as_completed(trials):
            if trial.exception():
                pool.shutdown(cancel_futures=True)
            outcome = trial.result()
            sys.stdout.write(f"{outcome.fault:<9} {'killed' if outcome.killed else 'SURVIVES'} {outcome.first}\n")
            sys.stdout.flush()
            found[outcome.fault] = outcome
            known = [found[name] for name in FAULTS if name in found]
            MATRIX.write_text(json.dumps([one.to_json() for one in known], indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(table(known), encoding="utf-8")


if __name__ == "__main__":
    main([name for name in sys.argv[1:] if name != "--pages-only"], "--pages-only" not in sys.argv)
