"""``dsocr faults`` and ``demo``: list the known mistakes, plant one and show its effect, or write a table of them."""

from __future__ import annotations

import subprocess
import sys
import webbrowser
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.files import write_whole
from pytest_dsocr.base.words import did_you_mean, relative_path
from pytest_dsocr.engine.places import MINI
from pytest_dsocr.models import MODELS, UNMARKED
from pytest_dsocr.report.file import INDEX_NAME, WRONG
from pytest_dsocr.report.words import suites_folder

if TYPE_CHECKING:
    from pytest_dsocr.explain.catalogue import Port

PAGE, TEST = "receipt_086", Path("parity", "test_case.py")
HEAD = """# Mistakes of real ports

Made by `dsocr faults --table=docs/bugs.md` of the catalogue of mistakes and the `ports.toml` of each model.
Each is a mistake that ports of DeepSeek-OCR have made in public, or that the vendor's code invites.
`dsocr faults NUMBER page.png` plants it and shows what becomes of a page; where there is no id, nothing plants it.
"""


def add_run(command: ArgumentParser) -> None:
    """Add the arguments: a mistake, a page, and the files to write."""
    command.usage = "dsocr faults [ID] [PAGE] [--out=FOLDER] [--table=FILE]"
    command.add_argument("id", nargs="?", metavar="ID", help="a number such as SAM-09, or an id of the list")
    command.add_argument(
        "page", nargs="?", type=Path, metavar="PAGE", help=f"an image or a shipped page's name (default: {PAGE})"
    )
    command.add_argument("--out", type=Path, default=Path("dsocr-out"), help="folder for reports and pictures")
    command.add_argument("--table", type=Path, metavar="FILE", help="write the mistakes of real ports as Markdown")


def run(options: Namespace) -> Iterator[str]:
    """Yield the list, or describe one mistake and run it. ``options.status`` becomes the status of that run."""
    from pytest_dsocr.explain.catalogue import ports

    if options.table:
        write_whole(options.table, table(ports()).encode())
        yield str(options.table)
    elif options.id is None:
        yield from _listed()
    else:
        yield from described(options.id)
        options.status = subprocess.run(command(options.id, options.page, options.out), check=False).returncode


def _listed() -> Iterator[str]:
    from pytest_dsocr.explain.catalogue import mistakes, ports

    numbers: dict[str, list[str]] = {}
    for port in ports().values():
        numbers.setdefault(port.mistake, []).append(port.id)
    every = {name: one for family in [*MODELS.values()][::-1] for name, one in mistakes(family).items()}
    for one in every.values():
        seen = f" ({', '.join(numbers[one.id])})" if one.id in numbers else ""
        yield f"{one.id:<40} {one.words}{seen}"


def described(name: str) -> Iterator[str]:
    """Describe a mistake, and the stage and page where it shows."""
    from pytest_dsocr.explain.catalogue import mistakes, ports, resolve

    if (found := resolve(name)) is None:
        known = [one for family in MODELS.values() for one in mistakes(family)]
        like = did_you_mean(name, known)
        raise DsocrError(f"{name} is not a known mistake; dsocr faults lists them{like}")
    _, one = found
    yield f"{one.id}: {one.words}"
    for port in (port for port in ports().values() if port.mistake == one.id):
        yield f"{port.id:<16}{port.text}"
        if port.shows:
            yield f"{'shows at':<16}{port.shows}, on {port.page}"


def command(name: str, page: Path | None, out: Path, *, is_recorded: bool = False) -> list[str]:
    """Return the command that runs a mistake.

    On a page without a recording the engine is both sides, so the subject is isolated and the mistake stays out of the
    reference.

    Args:
        name: number or id of the mistake.
        page: the page; a recorded one by default.
    """
    from pytest_dsocr.explain.catalogue import resolve
    from pytest_dsocr.explain.planted import spec_of

    found = resolve(name)
    family = UNMARKED if found is None else found[0]
    own = [] if (is_recorded or page is None) and family.is_unmarked else ["--reference=engine", "--isolate"]
    own += [] if family.is_unmarked else [f"--checkpoint={family.name}:{MINI}"]
    return [
        *(sys.executable, "-m", "pytest_dsocr", "compare", str(page or PAGE)),
        *(f"--subject={spec_of(name)}", f"--out={out.absolute()}", f"--tests={suites_folder() / TEST}", *own),
        *("--", "-x", "-q", "-pno:cacheprovider"),
    ]


def table(every: Mapping[str, Port]) -> str:
    """Return the mistakes seen in ports as Markdown, by topic."""
    seen = [one for one in every.values() if one.topic]
    lines = [HEAD]
    for topic, rows in groupby(seen, key=lambda one: one.topic):
        lines += [f"## {topic}", "", "| | what is done wrong, and how it shows | planted by |", "| --- | --- | --- |"]
        cells = [(one.id, one.text.replace("|", "\\|"), f"`{one.mistake}`" if one.mistake else "") for one in rows]
        lines += [f"| **{number}** | {text} | {mistake} |" for number, text, mistake in cells] + [""]
    return "\n".join(lines)


DEMO, DEMO_PAGE = "CLP-W13", Path("figures_201")
"""The mistake is in the middle of the pipeline and visible in the map of its places; the page is small."""


def add_demo(command: ArgumentParser) -> None:
    """Add the folder, and whether to open the page."""
    command.add_argument(
        "--out", type=Path, default=Path("dsocr-demo"), help="folder for the page (default: %(default)s)"
    )
    command.add_argument("--no-open", action="store_true", help="do not open the page in a browser")


def demo(options: Namespace) -> Iterator[str]:
    """Yield the planted mistake and the path of the page. ``options.status`` is 0 if the comparison found it wrong."""
    yield from described(DEMO)
    words = [word for word in command(DEMO, DEMO_PAGE, options.out, is_recorded=True) if word != "-x"]
    status = subprocess.run(words, check=False).returncode
    options.status = 0 if status == WRONG else status or WRONG
    page = (options.out / INDEX_NAME).absolute()
    if page.is_file():
        yield f"{'page':<16}{relative_path(str(page))}"
        if not options.no_open:
            webbrowser.open(page.as_uri())
