"""The arguments of ``dsocr nightly``; its other modules are imported only where it runs."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path


def add_arguments(command: ArgumentParser) -> None:
    """Add the configuration or the nights to merge, and what counts before the configuration."""
    command.usage = "dsocr nightly CONFIG [options], or dsocr nightly --merge FOLDER FOLDER ... --out FOLDER"
    what = command.add_mutually_exclusive_group(required=True)
    what.add_argument("config", nargs="?", type=Path, metavar="CONFIG", help="configuration file in TOML")
    merged = "make one night of those of several machines, each the --out of a --shard"
    what.add_argument("--merge", nargs="+", type=Path, metavar="FOLDER", help=merged)
    command.add_argument("--out", metavar="FOLDER", help="folder of results, in place of the configuration's")
    command.add_argument("--history", metavar="FOLDER", help="folder that each night adds a file to, likewise")
    command.add_argument("--vendor", metavar="FOLDER", help="folder with the vendor's files, likewise")
    command.add_argument("--vendor-env", metavar="FOLDER", help="the vendor's environment, likewise")
    command.add_argument("--commit", help="what names the code, where this is no git repository")
    command.add_argument("--shard", metavar="I/N", help="part of the pages, for one machine of several, likewise")
    command.add_argument("--minutes", type=float, help="time budget, in place of the configuration's")
    command.add_argument("--again", action="store_true", help="run every part, whatever is done already")
