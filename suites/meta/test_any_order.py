"""The suites that any subject is put to say the same of it in whatever order their tests run, and each by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from pytest_dsocr.pages.shipped import shipped
from suites.meta.checkout import CHECKOUT

[SHORT] = (page for page in shipped("dev-3") if page.stem == "figures_201")


@pytest.mark.parametrize(
    ("order", "suites"),
    [
        ("alone", ("cache", "checkpoint", "contract", "reference")),
        ("backwards", ("cache", "checkpoint", "contract", "parity", "reference")),
    ],
    ids=["alone", "backwards"],
)
@pytest.mark.usefixtures("warm")
def test_the_suites_pass_in_another_order(order: str, suites: tuple[str, ...]) -> None:
    """Not each of ``parity`` alone: they are a line each on one report, which each would have made anew."""
    passes(f"--order={order}", *(f"suites/{suite}" for suite in suites), f"--dsocr-pages={SHORT}")


def passes(*arguments: str) -> None:
    """Run suites in a process of their own, with the warnings of this repository, and nothing of the caller's."""
    command = [sys.executable, "-m", "pytest", "-p", "suites.meta.any_order", "-p", "no:cacheprovider", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DSOCR"))}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^verdict +passes$", done.stdout, re.MULTILINE), done.stdout
