"""What ``dsocr doctor`` takes: those options of ``dsocr compare`` that say what a run needs."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import fields
from pathlib import Path

from pytest_dsocr.cli.compare import add_option
from pytest_dsocr.doctor.finding import Wanted
from pytest_dsocr.plugin.options import OPTIONS

NAMES = [field.name for field in fields(Wanted)]
TAKEN = {option.name: option for option in OPTIONS if option.name in NAMES}


def add_arguments(command: ArgumentParser) -> None:
    """Add them, and where the findings are written."""
    for option in TAKEN.values():
        add_option(command, option)
    command.add_argument("--json", type=Path, metavar="FILE", help="write the findings there as well")
