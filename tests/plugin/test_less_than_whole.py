"""A run that passes within looser limits, or without all of its tests or pages, says so wherever it is said to pass."""

from __future__ import annotations

import json
import shutil
from textwrap import dedent
from typing import Any

import pytest

from tests.plugin.conftest import CONFTEST, TEST_TEXT, Repository
from tests.plugin.test_no_false_greens import TWO

DROPPING = """
    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(items):
        yield
        items[:] = items[:1]
"""
MARKED = TEST_TEXT.replace("def ", "import pytest\n\n    @pytest.mark.dsocr(text=0.5)\n    def ")


def run(repository: Repository, tests: str, *arguments: str, ini: str = "", conftest: str = "") -> Any:
    """Give what is written of a run over three pages, which every view of it says."""
    repository.settle("Misreader" if "text" in ini + tests else "Reader", ini=ini)
    repository.pytester.makeconftest(dedent(CONFTEST.format(reference="Reference")) + dedent(conftest))
    for name in ("second", "third"):
        shutil.copy("page.png", f"{name}.png")
    pages = [f"--dsocr-pages={name}.png" for name in ("page", "second", "third")]
    ended = repository.run(tests, *pages, "--dsocr-out=out", *arguments, apart=True)
    out = repository.pytester.path / "out"
    found = json.loads((out / "dsocr.json").read_text(encoding="utf-8"))
    views = (ended.stdout.str(), *((out / name).read_text(encoding="utf-8") for name in ("index.html", "summary.md")))
    assert all(found["verdict"].partition(" (")[0] in view.replace("\\", "") for view in views)
    assert (ended.ret, found["passes"]) == (0, True)
    return found


@pytest.mark.parametrize("how", ["ini", "marker", "fixture"])
def test_limits_that_are_looser_than_usual_are_in_the_verdict(repository: Repository, how: str) -> None:
    given: dict[str, Any] = {
        "ini": {"tests": TEST_TEXT, "ini": "dsocr_tolerances =\n    text=0.5\n    seam=1e-9\n"},
        "marker": {"tests": MARKED},
        "fixture": {
            "tests": TEST_TEXT,
            "conftest": """
                @pytest.fixture
                def dsocr_limits(dsocr_limits):
                    return dsocr_limits.but({"text": 0.5})
            """,
        },
    }[how]
    found = run(repository, **given)
    assert found["verdict"] == "passes within looser limits: text=0.5 (0)"
    assert found["looser"] == {"text": {"allowed": 0.5, "usual": 0.0, "tests": 3}}


@pytest.mark.parametrize(
    ("arguments", "conftest", "verdict", "by"),
    [
        (("-k", "not second and not third"), "", "passes, 2 of 3 pages left out", ["-k not second and not third"]),
        (("-n", "1", "-k", "page"), "", "passes, 2 of 3 pages left out", ["-k page"]),
        ((), DROPPING, "passes, 2 of 3 pages left out", []),
        (
            ("--deselect", "test_it.py::test_boxes[third-tiny-markdown]"),
            "",
            "passes, 1 of 6 tests left out",
            ["--deselect ['test_it.py::test_boxes[third-tiny-markdown]']"],
        ),
    ],
)
def test_what_was_left_out_is_in_the_verdict(
    repository: Repository, arguments: tuple[str, ...], conftest: str, verdict: str, by: list[str]
) -> None:
    tests = TWO.replace('"text"', '"spans"').replace("test_text", "test_spans")
    found = run(repository, tests, *arguments, conftest=conftest)
    assert (found["verdict"], found["left"]["by"], found["left"]["of"]) == (verdict, by, 6)
    assert len(found["left"]["names"]) == found["left"]["tests"]
