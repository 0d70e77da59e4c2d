"""One mistake on one page: the parity suite's report of it, with the picture, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pytest_dsocr.pages.page_list import shipped
from tests.checkout import CHECKOUT
from tests.faults.all import FAULTS

PAGE = "receipt_086"


def show(name: str, page: Path | None, out: Path) -> int:
    """Say what a mistake is, run the parity suite against it, and name the files; give pytest's exit status.

    A page that is not shipped is held against the session without the mistake, in place of a recording.
    """
    one = FAULTS[name]
    sys.stdout.write(
        f"{one.id}: {one.title}\ncause           {one.cause}\nshows as        {one.symptom}; on {one.page}\n"
    )
    sys.stdout.flush()
    return subprocess.run(command(name, page, out), cwd=CHECKOUT, check=False).returncode


def command(name: str, page: Path | None, out: Path) -> list[str]:
    """Give the command; with a page of one's own the subject is isolated, for the reference is the same code."""
    [shown] = [one for one in shipped("dev-20") if one.stem == PAGE]
    own = [] if page is None else ["--dsocr-reference=session", "--dsocr-isolate"]
    options = [
        f"--dsocr-subject=tests.faults.subject:{name.replace('-', '_')}",
        f"--dsocr-pages={(page or shown).absolute()}",
        f"--dsocr-out={out.absolute()}",
        *own,
    ]
    return [
        sys.executable,
        "-m",
        "pytest",
        "suites/parity/test_case.py",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        *options,
    ]
