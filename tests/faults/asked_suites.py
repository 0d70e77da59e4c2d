"""The suites of a default run beside the pages, asked about one mistake in a process of its own.

The process is forked from one that has loaded all that suites need.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.contract.image import resampling
from tests.checkout import CHECKOUT
from tests.faults.outcome import Fault, Outcome, stage_of

CONTRACT, CACHE, CHECKPOINT = "suites/contract", "suites/cache", "suites/checkpoint"
FILES = f"{CONTRACT}/test_output.py", f"{CONTRACT}/test_tokens_to_text.py"
POLICY, READING, PAGES = f"{CONTRACT}/test_policy.py", f"{CACHE}/test_reading.py", f"{CACHE}/test_pages.py"
ASKED: Mapping[str, Sequence[Sequence[str]]] = {
    "tokenizer": ((CONTRACT,),),
    "postprocess": (FILES,),
    "vision_fusion": ((f"{CONTRACT}/test_zero_sum.py",), (PAGES,), (CHECKPOINT,), (CACHE,)),
    "prefill": ((CHECKPOINT,), (PAGES,), (CACHE,), (POLICY,)),
    "decode": ((POLICY,), (CHECKPOINT,), (CACHE,)),
    "read": ((READING,), (CHECKPOINT,), (CACHE,), (POLICY,)),
}
"""What is asked about a stage, one after the other: the suites that can see its mistakes."""
OF_VISION = ((CHECKPOINT,), (CACHE,))
OPTIONS = (
    *("-x", "-q", "--dsocr-explain=0", "-p", "no:cacheprovider", "-p", "no:randomly"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)
WORDS = re.compile(r"^_+ .*?(?=^=====)", re.M | re.S)
WRONG = re.compile(r"^(?:WRONG\s+|error in )([^\s:]+)", re.M)
KEPT_CHARACTERS = 1000


def ask_suites(fault: Fault) -> Outcome | None:
    """Run the suites until a test fails over the mistake; None where none does."""
    return next((found for asked in ASKED.get(fault.stage, OF_VISION) if (found := failure(fault, asked))), None)


def failure(fault: Fault, asked: Sequence[str]) -> Outcome | None:
    """Run suites, or tests of them; say how the first failure shows the mistake, and None where all pass.

    Raises:
        RuntimeError: where pytest ended without a failed test.
    """
    status, said = run_apart([*asked, *OPTIONS, f"--dsocr-subject={fault.spec}"])
    if status == 0:
        return None
    ends = [line for line in said.splitlines() if line.startswith(("FAILED ", "ERROR ")) and "::" in line]
    if not ends:
        raise RuntimeError(f"{' '.join(asked)} ended with {status}: {said[-1000:]}")
    test = ends[0].split(" ", 1)[1].split(" - ")[0]
    suite = test.partition("::")[0].rpartition("/")[0]
    lines = (WORDS.search(said) or [""])[0]
    wrong = WRONG.search(lines)
    right = wrong is not None and fault.stage in stages_of(wrong[1], suite)
    return Outcome(fault.id, True, suite, test, right, " ".join(lines.split())[:KEPT_CHARACTERS])


def run_apart(arguments: Sequence[str]) -> tuple[int, str]:
    """Run pytest in a process forked from this one; return its exit status and what it said."""
    assert torch.get_num_threads() == 1, "torch's threads do not outlive a fork"
    resampling()  # is kept, for a mistake in Pillow's resizing must not change which recordings fit
    with TemporaryDirectory() as folder:
        said = Path(folder) / "said"
        process = get_context("fork").Process(target=_run, args=(tuple(arguments), said))
        process.start()
        process.join()
        return process.exitcode or 0, said.read_text(encoding="utf-8")


def _run(arguments: Sequence[str], said: Path) -> None:
    with said.open("wb") as file:
        os.dup2(file.fileno(), sys.__stdout__.fileno())  # type: ignore[union-attr]
        os.dup2(file.fileno(), sys.__stderr__.fileno())  # type: ignore[union-attr]
    os.chdir(CHECKOUT)
    sys.exit(pytest.main(list(arguments)))


def stages_of(what: str, suite: str) -> tuple[str, ...]:
    """Return the stages that a comparison of a suite stands for: that of the cache compares one way with another."""
    if suite == CACHE and what == "text/together":
        return ("read", "decode")
    if suite == CACHE and what.partition("/")[0] not in ("sam.crops", "vision_fusion"):
        return ("read",) if what.startswith(("text", "read")) else ("prefill", "decode")
    return (stage_of(Comparison(what, Verdict.WRONG, "").stage),)
