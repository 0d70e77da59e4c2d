"""The suites of a default run beside the pages, asked about one mistake in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from suites.meta.faults.outcome import Outcome, stage_of
from suites.meta.faults.registry import Fault

ROOT = Path(__file__).parents[3]
CONTRACT, CACHE = "suites/contract", "suites/cache"
FILES = f"{CONTRACT}/test_output.py", f"{CONTRACT}/test_tokens_to_text.py"
POLICY, READING, PAGES = f"{CONTRACT}/test_policy.py", f"{CACHE}/test_reading.py", f"{CACHE}/test_pages.py"
FIRST: Mapping[str, Sequence[str]] = {
    "postprocess": FILES,
    "prefill": (PAGES,),
    "decode": (POLICY,),
    "read": (READING,),
}
"""What is asked first about a stage, in a process of its own: pytest drops a file beside its folder."""
WORDS = re.compile(r"^_+ .*?(?=^=====)", re.M | re.S)
NAMES = re.compile(r"^(?:_+ |rerun|subject|picture).*\n?", re.M)
"""Lines that name tests and mistakes, and say nothing of a cause."""
WRONG = re.compile(r"^WRONG\s+(\S+)", re.M)
ERROR = re.compile(r"^error in (\w+)", re.M)


def ask_suites(fault: Fault) -> Outcome | None:
    """Run the suites until a test fails over the mistake; None where none does."""
    spec = f"suites.meta.faults.subject:{fault.id.replace('-', '_')}"
    options = ("-x", "-q", "-p", "no:cacheprovider", f"--dsocr-subject={spec}")
    for asked in (FIRST.get(fault.stage, ()), (CONTRACT, CACHE)):
        found = failure(fault, [sys.executable, "-m", "pytest", *asked, *options]) if asked else None
        if found:
            return found
    return None


def failure(fault: Fault, command: Sequence[str]) -> Outcome | None:
    """Run suites; say how its first failure shows the mistake, and None where it passes.

    Raises:
        RuntimeError: where pytest ended without a failed test.
    """
    ran = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, check=False)
    if ran.returncode == 0:
        return None
    ends = [line for line in ran.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if not ends:
        raise RuntimeError(f"{' '.join(command)} ended with {ran.returncode}: {ran.stdout[-500:]}{ran.stderr[-500:]}")
    test = ends[0].split(" ", 1)[1].split(" - ")[0]
    suite = test.partition("::")[0].rpartition("/")[0]
    words = NAMES.sub("", (WORDS.search(ran.stdout) or [""])[0])
    wrong = WRONG.search(words) or ERROR.search(words)
    right = wrong is not None and fault.stage in stages_of(wrong[1].rstrip(":"), suite)
    told = re.search(fault.told, words, re.I | re.S) is not None
    return Outcome(fault.id, True, suite, test, right, " ".join(words.split())[:400], right and told)


def stages_of(what: str, suite: str) -> tuple[str, ...]:
    """Give the stages that a comparison of a suite stands for: that of the cache compares one way with another."""
    if suite == CACHE:
        return ("read",) if what.startswith(("text", "read")) else ("prefill", "decode")
    return (stage_of(what.partition("/")[0]),)
