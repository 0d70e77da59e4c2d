"""The command line: ``python -m ci.nightly nightly.toml``."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from ci.nightly import night
from ci.nightly.config import Config, read_config
from ci.nightly.state import MACHINE
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.foundation.locked import locked
from pytest_dsocr.foundation.printable import plain

LOCK = ".night.lock"
BAD_INPUT, INTERRUPTED = 2, 130
PATHS = ("out", "history", "vendor", "vendor_env")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a night; give the worst status of its parts, 2 on bad input, 130 where it was interrupted."""
    parser = argparse.ArgumentParser(prog="python -m ci.nightly", description=__doc__)
    parser.add_argument("config", type=Path, help="configuration file in TOML")
    parser.add_argument("--out", metavar="FOLDER", help="folder of results, in place of the configuration's")
    parser.add_argument("--history", metavar="FOLDER", help="folder that each night adds a file to, likewise")
    parser.add_argument("--vendor", metavar="FOLDER", help="folder with the vendor's files, likewise")
    parser.add_argument("--vendor-env", metavar="FOLDER", help="the vendor's environment, likewise")
    parser.add_argument("--commit", help="what names the code, where this is no git repository")
    parser.add_argument("--shard", metavar="I/N", help="part of the pages, for one machine of several, likewise")
    parser.add_argument("--minutes", type=float, help="time budget, in place of the configuration's")
    parser.add_argument("--again", action="store_true", help="run every part, whatever is done already")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        config = read_config(options.config, _given(options))
        with locked(Path(config.out) / LOCK):
            return _run(config, again=options.again)
    except DsocrError as error:
        print(f"nightly: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("nightly: interrupted; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Give what the command line says in place of the file; its paths are seen from here."""
    given = {
        name: value for name in (*PATHS, "minutes", "commit", "shard") if (value := getattr(options, name)) is not None
    }
    return {name: str(Path(value).absolute()) if value and name in PATHS else value for name, value in given.items()}


def _run(config: Config, *, again: bool) -> int:
    """Run a night; what it cannot read or write, or does wrong itself, is not the model's fault."""
    try:
        return night.run(config, lambda line: print(plain(line), flush=True), again=again)
    except (DsocrError, OSError) as error:
        print(f"nightly: {error}", file=sys.stderr)
        return MACHINE
    except Exception:
        traceback.print_exc()
        return MACHINE


def _interrupted(_: int, __: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
