"""The command line: ``python -m ci.implementations NAME``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ci.implementations.rows import ROWS
from ci.implementations.work import Work
from pytest_dsocr.foundation.errors import DsocrError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a row of the table; give the exit status of its suites, or 2 where they could not be run."""
    parser = argparse.ArgumentParser(prog="python -m ci.implementations", description=__doc__)
    parser.add_argument("name", choices=[*ROWS], help="which implementation")
    work = "folder for its environment, sources and results (default: implementations/NAME)"
    parser.add_argument("--work", type=Path, metavar="FOLDER", help=work)
    parser.epilog = "What is given behind -- are options of dsocr compare."
    given = [*(sys.argv[1:] if arguments is None else arguments), "--"]
    at = given.index("--")
    options = parser.parse_args(given[:at])
    try:
        return Work(ROWS[options.name], options.work or Path("implementations", options.name)).run(given[at + 1 : -1])
    except DsocrError as error:
        sys.stderr.write(f"dsocr: {error}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
