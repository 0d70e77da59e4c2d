"""The suites of a default run beside the pages, run on one mistake in a process of their own."""

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
"""What is asked about a stage, one after the other: the suites that can see its mistakes."""
OF_VISION = ((CHECKPOINT,), (CACHE,))
ALL = ((CONTRACT,), (CACHE,), (CHECKPOINT,))
LEVEL = level(os.environ.get("DSOCR_FAULTS_LEVEL", "L3"))
"""What the subject shows. Below L3 all pages are explained, all suites asked, and what is found is recorded only."""
SPEC = "DSOCR_FAULTS_SPEC"
NO_TESTS = 5
"""The status of a run none of whose tests apply to the device and the dtype, or to the level."""
RUN = """
import sys, pytest
from pytest_dsocr.contract.image import resampling
resampling()  # is kept: a mistake in Pillow's resizing must not change which recordings fit
sys.exit(pytest.main(sys.argv[1:]))
"""
DEVICE, DTYPE = os.environ.get("DSOCR_FAULTS_ON", "cpu:float32").split(":")
ON = f"--dsocr-device={DEVICE}", f"--dsocr-dtype={DTYPE}"
IMPORTED = "ignore:Module already imported:pytest.PytestAssertRewriteWarning"
OPTIONS = ("-x", "-q", "--dsocr-explain=0", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", IMPORTED, *ON)
WRONG = re.compile(r"^(?:WRONG\s+|error in )([^\s:]+)", re.M)


def ask_suites(fault: Fault) -> Outcome | None:
    """Run the suites until a test fails over the mistake; None where none does."""
    suites = ASKED.get(fault.stage, OF_VISION) if LEVEL is Level.MODULES else ALL
    return next((found for asked in suites if (found := failure(fault, asked))), None)


def showing(subject: Any) -> Any:
    """Return the subject, showing no more than what the level asks for."""
    names = (*(name for one in Level if one <= LEVEL for name in METHODS[one]), "close")
    return SimpleNamespace(**{name: getattr(subject, name) for name in names if hasattr(subject, name)})


def shown(setup: Setup) -> Any:
    """Make the subject whose factory an environment variable names, showing no more than what the level asks for."""
    module, _, factory = os.environ[SPEC].partition(":")
    return showing(getattr(import_module(module), factory)(setup))


def failure(fault: Fault, asked: Sequence[str]) -> Outcome | None:
    """Run suites, or tests of them; say how the first failure shows the mistake, and None where all pass.

    Raises:
        RuntimeError: where pytest ended without a failed test.
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
    """Return the stages that a comparison of a suite stands for: that of the cache compares one way with another."""
    if suite == CACHE and what == "text/together":
        return ("read", "decode")
    if suite == CACHE and what.partition("/")[0] not in ("sam.crops", "vision_fusion"):
        return ("read",) if what.startswith(("text", "read")) else ("prefill", "decode")
    return (stage_of(Comparison(what, Verdict.WRONG, "").stage),)
