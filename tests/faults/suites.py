"""Suites of a default run besides the pages, run on one mistake in a separate process."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.plugin.option_values import level
from pytest_dsocr.records.config import Level, Setup
from pytest_dsocr.subjects.protocol import METHODS
from tests.checkout import CHECKOUT
from tests.faults.outcome import Fault, Outcome, stage_of

CONTRACT, CACHE, CHECKPOINT = "suites/contract", "suites/cache", "suites/checkpoint"
ODD = f"{CONTRACT}/test_odd_pages.py"
FILES = f"{CONTRACT}/test_output.py", f"{CONTRACT}/test_tokens_to_text.py"
POLICY, READING, PAGES = f"{CONTRACT}/test_policy.py", f"{CACHE}/test_reading.py", f"{CACHE}/test_pages.py"
ASKED: Mapping[str, Sequence[Sequence[str]]] = {
    "tokenizer": ((CONTRACT, f"--ignore={ODD}"), (ODD,)),
    "postprocess": (FILES,),
    "vision_fusion": ((f"{CONTRACT}/test_zero_sum.py",), (PAGES,), (CHECKPOINT,), (CACHE,)),
    "prefill": ((CHECKPOINT,), (PAGES,), (CACHE,), (POLICY,)),
    "decode": ((POLICY,), (CHECKPOINT,), (CACHE,)),
    "read": ((READING,), (CHECKPOINT,), (CACHE,), (POLICY,)),
}
"""Suites that can see a stage's mistakes, in the order in which they run."""
OF_VISION = ((CHECKPOINT,), (CACHE,))
ALL = ((CONTRACT,), (CACHE,), (CHECKPOINT,))
LEVEL = level(os.environ.get("DSOCR_FAULTS_LEVEL", "L3"))
"""Level of the subject. Below L3 all pages are explained and all suites run, and the results are only recorded."""
SPEC = "DSOCR_FAULTS_SPEC"
NO_TESTS = 5
"""Exit status of a run without any test for the device, the dtype or the level."""
RUN = """
import sys, pytest
from pytest_dsocr.contract.image import resampling
resampling()  # cached, as a mistake in Pillow's resizing must not change the choice of recordings
sys.exit(pytest.main(sys.argv[1:]))
"""
DEVICE, DTYPE = os.environ.get("DSOCR_FAULTS_ON", "cpu:float32").split(":")
ON = f"--dsocr-device={DEVICE}", f"--dsocr-dtype={DTYPE}"
IMPORTED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
OPTIONS = ("-x", "-q", "--dsocr-explain=0", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", IMPORTED, *ON)
WRONG = re.compile(r"^(?:WRONG\s+|error in )([^\s:]+)", re.M)


def ask_suites(fault: Fault) -> Outcome | None:
    """Run the suites until a test fails, and return its outcome; None if all pass."""
    suites = ASKED.get(fault.stage, OF_VISION) if LEVEL is Level.MODULES else ALL
    return next((found for asked in suites if (found := failure(fault, asked))), None)


def showing(subject: Any) -> Any:
    """Return the subject with only the methods of the level."""
    names = (*(name for one in Level if one <= LEVEL for name in METHODS[one]), "close")
    return SimpleNamespace(**{name: getattr(subject, name) for name in names if hasattr(subject, name)})


def shown(setup: Setup) -> Any:
    """Return the subject that an environment variable names, with only the methods of the level."""
    module, _, factory = os.environ[SPEC].partition(":")
    return showing(getattr(import_module(module), factory)(setup))


def failure(fault: Fault, asked: Sequence[str]) -> Outcome | None:
    """Run suites or tests, and return the outcome of the first failure; None if all pass.

    Raises:
        RuntimeError: if pytest failed without a failed test.
    """
    spec = fault.spec if LEVEL is Level.MODULES else f"{__name__}:{shown.__name__}"
    command = [sys.executable, "-c", RUN, *asked, *OPTIONS, f"--dsocr-subject={spec}"]
    environment = {**os.environ, SPEC: fault.spec}
    ran = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True)
    if ran.returncode in (0, NO_TESTS):
        return None
    ends = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED ", "ERROR ")) and "::" in line]
    if not ends:
        raise RuntimeError(f"{' '.join(asked)} ended with {ran.returncode}: {ran.stdout[-500:]}{ran.stderr[-500:]}")
    test = ends[0].split(" ", 1)[1].split(" - ")[0]
    suite = test.partition("::")[0].rpartition("/")[0]
    wrong = WRONG.search(ran.stdout)
    return Outcome(suite, test, wrong is not None and fault.stage in stages_of(wrong[1], suite))


def stages_of(what: str, suite: str) -> tuple[str, ...]:
    """Return the stages that a suite's comparison is about; the cache suite compares two ways to decode."""
    if suite == CACHE and what == "text/together":
        return ("read", "decode")
    if suite == CACHE and what.partition("/")[0] not in ("sam.crops", "vision_fusion"):
        return ("read",) if what.startswith(("text", "read")) else ("prefill", "decode")
    return (stage_of(Comparison(what, Verdict.WRONG, "").stage),)
