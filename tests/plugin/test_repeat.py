"""``--dsocr-repeat``: occasional failures are found and reported with their frequency and their pattern."""

from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from syrupy.assertion import SnapshotAssertion

from tests.plugin.conftest import TEST_TEXT, Repository

PLANTED = """
import random

import standin

class Unsteady(standin.Counted):
    def __init__(self):
        self.draw, self.pages = random.Random(3), []

    def read(self, page, **how):
        self.pages.append(page)
        text = super().read(page, **how)
        return text.replace("Minutes", "Minuets") if {} else text
"""
RULES = {
    "never": "False",
    "always": "True",
    "race": "self.draw.random() < 0.2",
    "left": "self.pages[-2:-1] not in ([], [page])",
    "leak": "len(self.pages) > 7",
    "fifth": "len(self.pages) % 5 == 0",
    "crash": "len(self.pages) == 4 and 1 / 0",
    "crash_between": "len(self.pages) == 3 and 1 / 0",
    "crash_on_one": "page.stem == 'c' and 1 / 0",
}
"""Conditions under which the subject is wrong."""


@pytest.fixture(params=RULES)
def found(repository: Repository, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the result of a run that reads each of three pages ten times, one on two workers and one isolated."""
    repository.pytester.mkdir("pages")
    for name in "abc":
        Image.new("RGB", (32, 32)).save(Path("pages", f"{name}.png"))
    repository.pytester.makepyfile(planted=PLANTED.format(RULES[request.param]))
    repository.settle(ini="dsocr_explain = 0\ndsocr_out = out")
    options = ("--dsocr-pages=pages", "--dsocr-subject=planted:Unsteady", "--dsocr-repeat=10")
    more = {"never": ["-n2"], "leak": ["--dsocr-isolate"]}
    repository.run(TEST_TEXT, *options, *more.get(request.param, ()))
    return repository.result()


@pytest.mark.dsocr_slow
def test_it_is_told_how_often_after_what_and_why(found: dict[str, Any], snapshot: SnapshotAssertion) -> None:
    readings = [one["readings"] or {"after": [], "failing": []} for one in found["cases"]]
    assert {one["proven"] for one in found["causes"]} <= {
        "by what was read" in one["why"][:20] for one in found["causes"]
    }
    told = ["".join(name[0] for name in one["after"][1:]) + f": {one['failing']}" for one in readings]
    why = [test["why"] for test in found["tests"] if test["why"]][:1]
    assert [found["readings"], told, why, [one["why"] for one in found["causes"]]] == snapshot
