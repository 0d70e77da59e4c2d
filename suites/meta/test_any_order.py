"""The suites that any subject is put to say the same of it in whatever order their tests run, and each by itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_dsocr.pages.shipped import shipped

CHECKOUT = Path(__file__).parents[2]
PAGES = {page.stem: page for page in shipped("dev-3")}
SHORT, LONGER = PAGES["figures_201"], PAGES["receipt_086"]


@pytest.mark.parametrize("suites", [("cache", "contract", "vendor"), ("parity",)], ids="-".join)
def test_each_test_passes_by_itself(suites: tuple[str, ...]) -> None:
    passes("--order=alone", *(f"suites/{suite}" for suite in suites), f"--dsocr-pages={SHORT}")


@pytest.mark.parametrize(
    ("seed", "arguments"),
    [
        (8, ["-n", "0", f"--dsocr-pages={SHORT}"]),
        (17, ["-n", "0", f"--dsocr-pages={SHORT}"]),
        (20, ["-n", "2", f"--dsocr-pages={SHORT}", f"--dsocr-pages={LONGER}"]),
    ],
)
def test_all_pass_in_a_random_order(seed: int, arguments: list[str]) -> None:
    passes(f"--order={seed}", "suites", *arguments)


def passes(*arguments: str) -> None:
    """Run suites in a process of their own, with the warnings of this repository, and nothing of the caller's."""
    command = [sys.executable, "-m", "pytest", "-p", "suites.meta.any_order", "-p", "no:cacheprovider", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "DSOCR"))}
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^verdict +passes$", done.stdout, re.MULTILINE), done.stdout
