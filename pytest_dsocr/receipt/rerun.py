"""A receipt's command, run again on this machine and compared with the receipt."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.receipt.receipt import TESTS, Receipt, receipt_of
from pytest_dsocr.report.words import SAFE_PATH, suites_folder

COMPARE = ["dsocr", "compare"]
NOT_OURS = "the command is not one of dsocr compare alone; run it yourself: "


def run_again(receipt: Receipt) -> Iterator[tuple[str, str]]:
    """Yield a mark and a sentence for each thing that the same command gives here."""
    if receipt.reproduce[:2] != COMPARE:
        yield "open", f"{NOT_OURS}{receipt.command}"
        return
    given = receipt.sides.given_by.items()
    if elsewhere := [f"{name} by {by}" for name, by in given if not by.startswith("--")]:
        yield "note", f"the run had options that are not on its command line: {', '.join(elsewhere)}"
    with TemporaryDirectory() as folder:
        words = [sys.executable, SAFE_PATH, "-m", "pytest_dsocr", "compare", *arguments(receipt, folder)]
        subprocess.run(words, check=False, stdout=subprocess.DEVNULL)
        try:
            found = receipt_of(Path(folder))
        except DsocrError as error:
            yield "NO", f"it gave no result: {error}"
            return
    yield from compared(receipt, found)


def compared(stated: Receipt, found: Receipt) -> Iterator[tuple[str, str]]:
    """Yield a mark and a sentence for each fact that two runs of one subject share."""
    for name, own in _facts(found).items():
        if own == (other := _facts(stated)[name]):
            yield "ok", f"{name} as stated"
        else:
            yield "NO", f"{name}: {own}; the receipt states {other}"


def arguments(receipt: Receipt, out: str) -> Sequence[str]:
    """Return the command's arguments with paths of this installation's suites, and a folder for the result."""
    own = suites_folder()
    words = [
        f"{TESTS}{own.parent / word.removeprefix(TESTS)}" if word.startswith(f"{TESTS}{own.name}/") else word
        for word in receipt.reproduce[2:]
    ]
    at = words.index("--") if "--" in words else len(words)
    return [*words[:at], f"--out={out}", *words[at:]]


def _facts(receipt: Receipt) -> dict[str, Any]:
    """Return the facts that two runs of one subject share."""
    return {
        "verdict": receipt.verdict,
        "counts": {verdict: number for verdict, number in receipt.counts.items() if number},
        "stages": receipt.stages,
        "causes": [(one.what, one.why, one.proven, one.described) for one in (of.found for of in receipt.causes)],
    }
