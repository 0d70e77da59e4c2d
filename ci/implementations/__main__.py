"""Run a row of ``rows.toml`` with the default suites, and print the tables of docs/implementations.md with it alone."""

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ci.implementations.versions import bisect, versions_of
from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.words import in_shell
from pytest_dsocr.history.scoreboard import STAGES, ScoreboardEntry, keep, tables
from pytest_dsocr.receipt.receipt import write_receipt
from pytest_dsocr.reference.environment import check_vendor_folder
from pytest_dsocr.report.file import read_result

CHECKOUT = Path(__file__).parents[2]
TORCH = "torch==2.13.0"
"""Pinned in every environment: another torch changes what both sides compute with. A CPU build will do."""
UP_S = 180.0


@dataclass(frozen=True)
class Row:
    """An implementation; see ``rows.toml``."""

    title: str
    version: str
    subject: str
    setup: str = ""
    path: str = ""
    serve: str = ""
    health: str = ""
    folder: str = ""
    repository: str = ""
    options: str = ""
    copied_from: Mapping[str, str] = field(default_factory=dict)
    """Row that a stage was copied from, by stage."""

    def needs(self, variable: str) -> bool:
        """Return whether the row names something that its user must have."""
        return f"${variable}" in f"{self.setup} {self.subject} {self.path}"

    @property
    def package(self) -> str:
        """The package that it is a version of; raise ``DsocrError`` where it is of a commit."""
        package, _, number = self.version.partition(" ")
        if package == "commit":
            raise DsocrError(f"this row is of the commit {number} and of no package, which alone has versions")
        return package

    def at(self, number: str) -> "Row":
        """Return the row of another version of its package."""
        pinned = self.version.removeprefix(f"{self.package} ")
        said = ("version", "setup", "subject", "serve", "path")
        return replace(self, **{name: getattr(self, name).replace(pinned, number) for name in said})


def rows_in(path: Path) -> dict[str, Row]:
    """Return the rows of a file by name; one that shares a folder with another has that one's setup."""
    rows = {name: Row(**row) for name, row in tomllib.loads(path.read_text()).items()}
    setups = {row.folder: row.setup for row in rows.values() if row.setup and row.folder}
    return {name: replace(row, setup=row.setup or setups.get(row.folder, "")) for name, row in rows.items()}


OURS = Path(__file__).with_name("rows.toml")
ROWS = rows_in(OURS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a row of the table; return the exit status of its suites, or 2 where they could not be run."""
    parser = argparse.ArgumentParser(prog="python -m ci.implementations", description=__doc__)
    parser.add_argument("name", help=f"which implementation: {', '.join(ROWS)}")
    parser.add_argument("--rows", type=Path, default=OURS, metavar="FILE", help="rows of your own, in such a file")
    work = "folder for its environment, sources and results (default: implementations/NAME)"
    parser.add_argument("--work", type=Path, metavar="FOLDER", help=work)
    parser.add_argument("--sources", type=Path, metavar="FOLDER", help="clone of its repository, where it has one")
    parser.add_argument("--vendor", type=Path, metavar="FOLDER", help="the vendor's Python files, where it needs them")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the result there, for dsocr scoreboard")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--version", help="run this release in place of the row's")
    which.add_argument("--newest", action="store_true", help="run the newest release that pip finds")
    which.add_argument("--bisect", metavar="A..B", help="find the release between two in which --stage changed")
    parser.add_argument("--stage", choices=[*STAGES], default="text", help="of --bisect (default: text)")
    parser.epilog = "What is given behind -- are options of dsocr compare."
    given = [*(sys.argv[1:] if arguments is None else arguments), "--"]
    at = given.index("--")
    options = parser.parse_args(given[:at])
    try:
        return _run(options, given[at + 1 : -1])
    except DsocrError as error:
        sys.stderr.write(f"dsocr: {error}\n")
        return 2


def _run(options: argparse.Namespace, more: Sequence[str]) -> int:
    rows = rows_in(options.rows)
    if options.name not in rows:
        raise DsocrError(f"there is no row {options.name}; give one of {', '.join(rows)}")
    row = rows[options.name]
    if options.bisect:
        change = bisect(versions_of(row.package), options.bisect, lambda one: _state_of(row.at(one), options, more))
        sys.stdout.write(f"{options.stage}: {change}\n")
        return 0
    if version := versions_of(row.package)[-1] if options.newest else options.version:
        row = row.at(version)
    return _compared(row, options, more)[0]


def _state_of(row: Row, options: argparse.Namespace, more: Sequence[str]) -> str | None:
    """Return a stage's cell but for its error; None where that version could not be run."""
    try:
        return _compared(row, options, more)[1].stages[options.stage].partition(",")[0]
    except DsocrError as error:
        sys.stdout.write(f"left out    {row.version}: {error}\n")
        return None


def _compared(row: Row, options: argparse.Namespace, more: Sequence[str]) -> tuple[int, ScoreboardEntry]:
    """Run the suites on a row; return their exit status, and what is kept."""
    work = (options.work or Path("implementations", row.folder or options.name)).absolute()
    out = work / "out" / f"{options.name}-{row.version.rpartition(' ')[2]}"
    variables = environment_of(row, work, options.sources, options.vendor)
    python = _installed(row, work, variables)
    subject = expanded(row.subject, variables)
    shutil.rmtree(out, ignore_errors=True)  # an old result is no answer of a run that cannot start
    with _serving(row, variables, work / "server.log"):
        command: list[str | Path] = [python, "-m", "pytest_dsocr", "compare", f"--subject={subject}", f"--out={out}"]
        status = subprocess.run([*command, *row.options.split(), *more], env=variables).returncode
    kept = ScoreboardEntry.of(read_result(out), options.name, row.title, row.version)
    kept = replace(kept, copied_from=row.copied_from)
    sys.stdout.write("\n".join(tables([kept])))
    if options.keep:
        with suppress(DsocrError):  # of an adapter whose result cannot be certified
            write_receipt(out)
        keep(options.keep, kept, out)
    return status, kept


def _installed(row: Row, work: Path, variables: Mapping[str, str]) -> Path:
    """Install what a row needs, where another or nothing was installed; return its environment's Python."""
    python, made, installed = work / "env/bin/python", work / "env/made", work / "installed"
    if not made.is_file():
        _shown([sys.executable, "-m", "venv", work / "env"])
        _shown([python, "-m", "pip", "install", "-q", TORCH, "-e", CHECKOUT])
        made.touch()
    if installed.is_file() and installed.read_text() != row.setup:
        for path in {*work.iterdir()} - {work / "env", work / "out"}:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if not installed.is_file():
        _shown(["sh", "-ec", row.setup], cwd=work, env=variables)
        installed.write_text(row.setup)
    return python


def environment_of(row: Row, work: Path, sources: Path | None, vendor: Path | None) -> dict[str, str]:
    """Return the environment of a row's commands.

    Raises:
        DsocrError: where the row needs something that its user has not named.
    """
    if row.needs("VENDOR"):
        if vendor is None:
            raise DsocrError("this row needs the vendor's Python files; name their folder: --vendor=FOLDER")
        check_vendor_folder(vendor)
    if row.needs("SOURCES") and not (sources and sources.is_dir()):
        where = f"{row.repository} at {row.version}"
        raise DsocrError(f"this row needs a clone of {where}; name its folder: --sources=FOLDER")
    named = {"VENDOR": vendor, "DSOCR_VENDOR": vendor, "SOURCES": sources, "WORK": work, "CHECKOUT": CHECKOUT}
    variables = {**os.environ, **{name: str(path.absolute()) for name, path in named.items() if path}}
    folders = [str(CHECKOUT), *([str(work / expanded(row.path, variables))] if row.path else [])]
    path = os.pathsep.join([str(work / "env/bin"), variables.get("PATH", os.defpath)])
    return {**variables, "PYTHONPATH": os.pathsep.join(folders), "PATH": path}


def expanded(text: str, variables: Mapping[str, str]) -> str:
    """Fill a row's variables in."""
    for name in ("WORK", "SOURCES"):
        text = text.replace(f"${name}", variables.get(name, ""))
    return text


@contextmanager
def _serving(row: Row, variables: Mapping[str, str], log: Path) -> Iterator[None]:
    if not row.serve:
        yield
        return
    with log.open("w") as said:
        server = subprocess.Popen(f"exec {row.serve}", shell=True, stdout=said, stderr=said, env=variables)
        try:
            end = time.monotonic() + UP_S
            while not _answers(row.health):
                if server.poll() is not None or time.monotonic() > end:
                    raise DsocrError(f"the server did not come up; see {log}")
                time.sleep(0.5)
            yield
        finally:
            server.kill()
            server.wait()


def _answers(url: str) -> bool:
    with suppress(OSError), urllib.request.urlopen(url):
        return True
    return False


def _shown(command: Sequence[str | Path], **how: Any) -> None:
    """Run a command, and say which; raise ``DsocrError`` where it fails."""
    words = [str(word) for word in command]
    sys.stdout.write(f"running     {in_shell(words)}\n")
    sys.stdout.flush()
    if status := subprocess.run(words, **how).returncode:
        raise DsocrError(f"it ended with status {status}; see what it said above")


if __name__ == "__main__":
    sys.exit(main())
