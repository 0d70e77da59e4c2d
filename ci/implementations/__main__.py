"""Run a row of ``rows.toml`` with the default suites, and print the rows of docs/implementations.md that it makes."""

import argparse
import json
import os
import subprocess
import sys
import time
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.words import in_shell
from pytest_dsocr.reference.environment import check_vendor_folder
from pytest_dsocr.report.payload import number

CHECKOUT = Path(__file__).parents[2]
TORCH = "torch==2.13.0"
"""Pinned in every environment: another torch changes what both sides compute with. A CPU build will do."""
UP_S = 60.0
STAGES: Mapping[str, tuple[str, ...]] = {
    "ids": ("input_ids", "images_seq_mask"),
    "grid": ("images_spatial_crop",),
    "page's view": ("images_ori",),
    "crops": ("images_crop",),
    "SAM": ("sam.",),
    "CLIP": ("clip.",),
    "projector": ("projector.",),
    "fusion": ("vision_fusion",),
    "prefill": ("prefill",),
    "steps": ("logits", "tokens"),
    "text": ("text", "spans", "boxes"),
}
"""What a comparison of each stage is called, or begins with."""


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

    def needs(self, variable: str) -> bool:
        """Return whether the row names something that its user must have."""
        return f"${variable}" in f"{self.setup} {self.subject} {self.path}"


ROWS = {name: Row(**row) for name, row in tomllib.loads(Path(__file__).with_name("rows.toml").read_text()).items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a row of the table; return the exit status of its suites, or 2 where they could not be run."""
    parser = argparse.ArgumentParser(prog="python -m ci.implementations", description=__doc__)
    parser.add_argument("name", choices=[*ROWS], help="which implementation")
    work = "folder for its environment, sources and results (default: implementations/NAME)"
    parser.add_argument("--work", type=Path, metavar="FOLDER", help=work)
    parser.add_argument("--sources", type=Path, metavar="FOLDER", help="clone of its repository, where it has one")
    parser.add_argument("--vendor", type=Path, metavar="FOLDER", help="the vendor's Python files, where it needs them")
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
    row = ROWS[options.name]
    work = (options.work or Path("implementations", row.folder or options.name)).absolute()
    out = work / "out" / options.name
    variables = environment_of(row, work, options.sources, options.vendor)
    python = work / "env" / "bin" / "python"
    if not python.is_file():
        _shown([sys.executable, "-m", "venv", work / "env"])
    if not (work / "installed").is_file():
        _shown([python, "-m", "pip", "install", "-q", TORCH, "-e", CHECKOUT])
        setup = row.setup or next(one.setup for one in ROWS.values() if one.folder == row.folder)
        _shown(["sh", "-ec", setup], cwd=work, env=variables)
        (work / "installed").touch()
    subject = expanded(row.subject, variables)
    with _serving(row, variables, work / "server.log"):
        command = [work / "env/bin/dsocr", "compare", f"--subject={subject}", f"--out={out}"]
        status = subprocess.run([*command, *row.options.split(), *more], env=variables).returncode
    sys.stdout.write("\n".join(rows_of(options.name, out / "dsocr.json")) + "\n")
    return status


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


def rows_of(name: str, result: Path) -> list[str]:
    """Return what a run's ``dsocr.json`` says as a row of each of the page's tables.

    Raises:
        DsocrError: where the run did not come to its end.
    """
    found = json.loads(result.read_text(encoding="utf-8"))
    if found["status"] != "finished":
        raise DsocrError(f"{result} is of a run that did not come to its end; run it again")
    ended = [test["ended_as"] != "passes" for test in found["tests"] if test["outcome"] != "skipped"]
    compared = [one for test in found["tests"] for one in test["comparisons"] if one["verdict"] != "NOT-COMPARED"]
    date, failed = found["started"].partition("T")[0], f"{sum(ended)} of {len(ended)}"
    run = [ROWS[name].title, f"`{name}`", ROWS[name].version, found["run"]["level"], date, failed]
    cells = [cell([one for one in compared if _is_of(one["what"], stage)]) for stage in STAGES]
    return [f"| {' | '.join(row)} |" for row in (run, [f"`{name}`", *cells])]


def cell(compared: Sequence[Mapping[str, Any]]) -> str:
    """Return how a stage stands in the table: right, or how many comparisons are wrong, with the largest error."""
    if not compared:
        return "."
    wrong = sum(one["verdict"] == "WRONG" for one in compared)
    error = max(filter(isfinite, (number(one["error"]) for one in compared)), default=0.0)
    said = f"x {wrong} of {len(compared)}" if wrong else "="
    return f"{said}, {error:.0e}" if error else said


def _is_of(what: str, stage: str) -> bool:
    return any(what.startswith(one) if one.endswith(".") else what.partition("/")[0] == one for one in STAGES[stage])


if __name__ == "__main__":
    sys.exit(main())
