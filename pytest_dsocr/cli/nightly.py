"""``dsocr nightly``: every part of a night into one folder of results."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.files import locked
from pytest_dsocr.foundation.process import interrupted_by_sigterm
from pytest_dsocr.night.config import read_config
from pytest_dsocr.night.run import run as run_night
from pytest_dsocr.night.state import MACHINE

LOCK = ".night.lock"
PATHS = ("out", "history", "vendor", "vendor_env")


def add_run(command: ArgumentParser) -> None:
    """Add the configuration, and what counts before it."""
    command.add_argument("config", type=Path, metavar="CONFIG", help="configuration file in TOML")
    command.add_argument("--out", metavar="FOLDER", help="folder of results, in place of the configuration's")
    command.add_argument("--history", metavar="FOLDER", help="folder that each night adds a file to, likewise")
    command.add_argument("--vendor", metavar="FOLDER", help="folder with the vendor's files, likewise")
    command.add_argument("--vendor-env", metavar="FOLDER", help="the vendor's environment, likewise")
    command.add_argument("--commit", help="what names the code, where this is no git repository")
    command.add_argument("--minutes", type=float, help="time budget, in place of the configuration's")
    command.add_argument("--again", action="store_true", help="run every part, whatever is done already")


def run(options: Namespace) -> Iterator[str]:
    """Run a night; ``options.status`` becomes the worst status of its parts.

    Raises:
        DsocrError: on bad input; with the status 10, where the night itself cannot go on.
    """
    config = read_config(options.config, _overrides(options))
    with interrupted_by_sigterm(), locked(Path(config.out) / LOCK):
        options.status = MACHINE  # what ends the night itself is not the model's fault
        try:
            options.status = yield from run_night(config, again=options.again)
        except KeyboardInterrupt:
            yield "the same command goes on from here"
            raise


def _overrides(options: Namespace) -> dict[str, Any]:
    """Return what the command line says in place of the file; its paths are relative to the working directory."""
    values = {name: getattr(options, name) for name in (*PATHS, "minutes", "commit")}
    return {
        name: str(Path(value).absolute()) if value and name in PATHS else value
        for name, value in values.items()
        if value is not None
    }
