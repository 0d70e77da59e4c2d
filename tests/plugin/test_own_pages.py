"""Pages of one's own, without a recording and without the vendor's files: the session stands in, and is named for it.

Real runs of the suites on the embedded checkpoint.
"""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

import suites
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.report.words import BY_SESSION
from tests.subjects.test_examples import ONE_METHOD

CASE = str(Path(suites.__file__).parent / "parity" / "test_case.py")
SESSION = "--dsocr-reference=session"
SHORT = "--dsocr-max-new-tokens=4"
UNSEEN = "unseen-tiny-markdown"
RECORDED, AS_RECORDED = "figures_201", "--dsocr-presets=gundam"
FAILED, PASSED = pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK
NOT_HELD = "NOT-COMPARED: * does not hold unseen-*-markdown, but *; "
MAY_MISS = "or declare that it may be missing: --dsocr-may-miss=recording"


@pytest.fixture
def unseen(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with a page that can be read and was never recorded, ``unseen.png``."""
    page = Image.open(recorded_page()).convert("RGB")
    ImageDraw.Draw(page).rectangle((2, 2, 40, 12), "black")
    page.save(pytester.path / "unseen.png")
    monkeypatch.setenv("DSOCR_PRESETS", "tiny")
    return pytester


def recorded_page() -> Path:
    [page] = [page for page in shipped("dev-3") if page.stem == RECORDED]
    return page


def run(pytester: pytest.Pytester, *arguments: str, subject: str = ONE_METHOD) -> pytest.RunResult:
    """Put a subject to some of the suites, on the unseen page."""
    return pytester.runpytest_inprocess(
        "--dsocr-pages=unseen.png", "--dsocr-out=out", f"--dsocr-subject={subject}", *arguments
    )


def written(pytester: pytest.Pytester) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((pytester.path / "out" / "dsocr.json").read_text(encoding="utf-8"))
    return content


def test_the_session_stands_in_and_every_verdict_says_so(unseen: pytest.Pytester) -> None:
    result = run(unseen, CASE, SESSION, SHORT)
    assert result.ret == PASSED
    result.stdout.fnmatch_lines(
        [
            "dsocr: reference recorded, or else by the session, *, cpu, float32, eager; pages unseen.png*",
            f"reference       {BY_SESSION}, mini/cpu-float32-eager*",
            "* in 1 case: * MATCH; * not made",
            f"verdict         passes, {BY_SESSION}",
        ]
    )
    told = written(unseen)
    assert told["verdict"] == f"passes, {BY_SESSION}"
    assert told["run"]["reference"] == "session"
    assert told["run"]["provenance"]["vendor_sha256"] == {}
    [case] = told["cases"]
    assert (case["id"], case["by_session"]) == (UNSEEN, True)
    page = html.unescape((unseen.path / "out" / "index.html").read_text(encoding="utf-8"))
    assert page.count(BY_SESSION) >= 3, "in the headline, of the reference and of the case"


def test_the_session_is_never_held_against_itself(unseen: pytest.Pytester) -> None:
    """Where a recording answers, it is as good as any subject."""
    unseen.makepyfile("def test_it(dsocr_report, dsocr_check): dsocr_check(dsocr_report, 'images_ori')")
    result = run(unseen, SESSION, AS_RECORDED, f"--dsocr-pages={recorded_page()}", subject="session")
    assert result.ret == FAILED
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([f"{NOT_HELD}*the session is the subject itself, so it cannot be*; {MAY_MISS}"])
    assert written(unseen)["passes"] is False
    result = run(unseen, SESSION, "--dsocr-may-miss=recording", subject="session")
    assert result.ret == FAILED, "nothing was compared"
    result.assert_outcomes(skipped=1)
