"""``dsocr demo``: plant a mistake in the engine, compare it with the vendor's recording, and open the page."""

import subprocess
import webbrowser
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

from pytest_dsocr.base.words import relative_path
from pytest_dsocr.cli.faults import command as command_of
from pytest_dsocr.cli.faults import described
from pytest_dsocr.report.file import INDEX_NAME, WRONG

MISTAKE, PAGE = "CLP-W13", Path("figures_201")
"""The mistake is in the middle of the pipeline and visible in the map of its places; the page is small."""


def add_run(command: ArgumentParser) -> None:
    """Add the folder, and whether to open the page."""
    command.add_argument(
        "--out", type=Path, default=Path("dsocr-demo"), help="folder for the page (default: %(default)s)"
    )
    command.add_argument("--no-open", action="store_true", help="do not open the page in a browser")


def run(options: Namespace) -> Iterator[str]:
    """Yield the planted mistake and the path of the page. ``options.status`` is 0 if the comparison found it wrong."""
    yield from described(MISTAKE)
    words = [word for word in command_of(MISTAKE, PAGE, options.out, is_recorded=True) if word != "-x"]
    status = subprocess.run(words, check=False).returncode
    options.status = 0 if status == WRONG else status or WRONG
    page = (options.out / INDEX_NAME).absolute()
    if page.is_file():
        yield f"{'page':<16}{relative_path(str(page))}"
        if not options.no_open:
            webbrowser.open(page.as_uri())
