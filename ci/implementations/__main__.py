"""The command line: ``python -m ci.implementations NAME``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ci.implementations.kept import PAGE, keep, page_of
from ci.implementations.rows import ROWS
from ci.implementations.work import Given, Work
from pytest_dsocr.foundation.errors import DsocrError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a row of the table; give the exit status of its suites, or 2 where they could not be run."""
    parser = argparse.ArgumentParser(prog="python -m ci.implementations", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("name", nargs="?", choices=[*ROWS], help="which implementation")
    what.add_argument("--page", action="store_true", help="make the tables of docs/implementations.md again")
    parser.add_argument("--keep", action="store_true", help="keep the result for the table; for a run by default")
    work = "folder for its environment, sources and results (default: implementations/NAME)"
    parser.add_argument("--work", type=Path, metavar="FOLDER", help=work)
    parser.add_argument("--sources", type=Path, metavar="FOLDER", help="clone of its repository, where it has one")
    parser.add_argument("--vendor", type=Path, metavar="FOLDER", help="the vendor's Python files, where it needs them")
    parser.epilog = "What is given behind -- are options of dsocr compare."
    given = [*(sys.argv[1:] if arguments is None else arguments), "--"]
    at = given.index("--")
    options = parser.parse_args(given[:at])
    try:
        return _page() if options.page else _run(options, given[at + 1 : -1])
    except DsocrError as error:
        sys.stderr.write(f"dsocr: {error}\n")
        return 2


def _run(options: argparse.Namespace, more: Sequence[str]) -> int:
    row = ROWS[options.name]
    folder = options.work or Path("implementations", row.folder or options.name)
    work = Work(row, folder, Given(options.sources, options.vendor))
    status = work.run(more)
    if options.keep:
        sys.stdout.write(f"kept        {keep(options.name, row, work.out / 'dsocr.json')}\n")
    return status


def _page() -> int:
    PAGE.write_text(page_of(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
