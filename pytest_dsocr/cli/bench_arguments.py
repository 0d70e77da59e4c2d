"""The arguments of ``dsocr bench``; its other modules are imported only where it runs."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from pytest_dsocr.perf.limits import LOOKS, TOKENS


def add_arguments(command: ArgumentParser) -> None:
    """Add what is the command's alone."""
    command.usage = "dsocr bench A B [options], dsocr bench --bisect A B, or dsocr bench --calibrate A"
    command.add_argument("sides", nargs="+", metavar="A B", help="a commit, FILE.whl, env:FOLDER, subject:NAME, or .")
    _add(command, "--subject", "implementation of a side that names none", "session", metavar="NAME")
    _add(command, "--page", "an image (default: a shipped page)", type=Path, metavar="FILE")
    _add(command, "--max-new-tokens", "stop after this many tokens", TOKENS, type=int, metavar="TOKENS")
    _add(
        command,
        "--slower",
        "how much slower a stage may be, such as decode=0.05; may be given several times",
        action="append",
        metavar="STAGE=SHARE",
    )
    _add(command, "--rounds", "take at most so many pairs of rounds", LOOKS[-1], type=int, metavar="PAIRS")
    _add(command, "--time-limit", "longest time without an answer", 600.0, type=float, metavar="SECONDS")
    _add(
        command,
        "--out",
        "write the result and every round to this file",
        type=Path,
        metavar="FILE",
    )
    where = "add a line for each side to this file, such as history.jsonl, which dsocr history shows"
    _add(command, "--history", where, type=Path, metavar="FILE")
    _add(
        command,
        "--planted",
        "really make a stage of B slower, to see it found; may be given several times",
        action="append",
        metavar="STAGE=SHARE",
    )
    bisect = "look for the first commit behind A, up to B, that is slower than A"
    command.add_argument("--bisect", action="store_true", help=bisect)
    counts = "let --bisect judge by what is counted, such as operators and waits, and by no clock"
    command.add_argument("--counts", action="store_true", help=counts)
    command.add_argument(
        "--calibrate", action="store_true", help="measure A against itself: what this machine's verdicts are worth"
    )
    _add(command, "--judgements", "how often --calibrate judges A against itself", 100, type=int, metavar="COUNT")
    _add(command, "--pairs", "pairs of rounds that --calibrate draws them from", 240, type=int, metavar="PAIRS")
    _add(command, "--processes", "pairs of processes that --calibrate spreads them over", 5, type=int, metavar="COUNT")


def _add(command: ArgumentParser, flag: str, what: str, default: Any = None, **how: Any) -> None:
    shown = (
        ""
        if default is None
        else f" (default: {default:g})"
        if isinstance(default, float)
        else f" (default: {default})"
    )
    command.add_argument(flag, default=default, help=f"{what}{shown}", **how)
