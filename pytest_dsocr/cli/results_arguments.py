"""The arguments of ``dsocr bisect``, ``diff`` and ``merge``, apart, so that the command line starts at once."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from pytest_dsocr.cli import compare


def add_bisect(command: ArgumentParser) -> None:
    """Add the two commits, by what each is judged, and the options of ``dsocr compare``."""
    command.add_argument("good", metavar="GOOD", help="a commit, tag or branch that was right")
    command.add_argument("bad", metavar="BAD", help="a later one that is wrong")
    command.add_argument("--stage", metavar="STAGE", help="judge by this stage alone, such as vision_fusion")
    command.add_argument("--case", metavar="ID", help="judge by this case alone, such as page-gundam-markdown")
    compare.add_arguments(command)
    command.usage = "dsocr bisect GOOD BAD [PAGES ...] [options] [-- options of pytest's]"


def add_diff(command: ArgumentParser) -> None:
    """Add the two results, and where the Markdown goes."""
    command.add_argument("old", type=Path, metavar="OLD", help="a dsocr.json, or the folder that it lies in")
    command.add_argument("new", type=Path, metavar="NEW", help="that of a later run")
    command.add_argument("--markdown", type=Path, metavar="FILE", help="write it as Markdown as well")


def add_merge(command: ArgumentParser) -> None:
    """Add the folders to merge, and where to."""
    command.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="a shard's --out")
    command.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder for the merged result")
    command.add_argument(
        "--unfinished", action="store_true", help="merge what there is of runs that did not finish; it does not pass"
    )
