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
from tests.subjects.test_examples import ONE_METHOD, SEPARATE, SWAPPED

PARITY = Path(suites.__file__).parent / "parity"
CASE, SNAPSHOTS = (str(PARITY / name) for name in ("test_case.py", "test_snapshots.py"))
VENDOR = str(PARITY.parent / "reference" / "test_recordings.py")
SESSION = "--dsocr-reference=session"
SHORT = "--dsocr-max-new-tokens=4"
UNSEEN = "unseen-tiny-markdown"
RECORDED, AS_RECORDED = "figures_201", "--dsocr-presets=gundam"
OWN_FIXTURE = """
    import pytest
    from pytest_dsocr.subjects.session import session_subject

    @pytest.fixture(scope="session")
    def dsocr_subject(dsocr_config):
        return session_subject(dsocr_config.setup)
"""
FAILED, PASSED = pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.OK
NOT_HELD = "NOT-COMPARED: * does not hold unseen-*-markdown, but *; "
STAND_IN = f"without the vendor's files, let the session stand in: {SESSION}"
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


def test_a_wrong_subject_fails_on_a_page_of_ones_own(unseen: pytest.Pytester) -> None:
    with Image.open("unseen.png") as page:
        page.resize((700, 1400)).save("unseen.png")  # which has crops, to change places with the whole page
    result = run(unseen, CASE, SESSION, SHORT, AS_RECORDED, subject=SWAPPED)
    assert result.ret == FAILED
    result.stdout.fnmatch_lines(
        [
            "vision_fusion: *",
            f"reference       {BY_SESSION}, mini/cpu-float32-eager*",
            "WRONG           unseen-gundam-markdown: vision_fusion, after 12 comparisons that passed*",
            f"verdict         * tests failed, {BY_SESSION}",
        ]
    )
    assert result.parseoutcomes()["passed"] >= 4, "inputs, sam, clip and projector are right"


def test_a_recording_answers_for_the_cases_that_it_holds_and_a_failure_names_who_answered(
    unseen: pytest.Pytester,
) -> None:
    unseen.syspathinsert()
    unseen.makepyfile(silent="class Silent:\n    def read(self, page, **how): return 'nothing'")
    pages = (AS_RECORDED, f"--dsocr-pages={recorded_page()}")
    result = run(unseen, CASE, SESSION, *pages, "-v", "-k", "test_text", subject="silent:Silent")
    result.assert_outcomes(failed=2)
    by_session, recorded, *_ = (line for line in result.outlines if line.startswith("reference "))
    assert BY_SESSION in by_session
    assert "recorded on" in recorded
    result.stdout.fnmatch_lines([f"verdict         2 of 2 tests failed, 1 of 2 cases {BY_SESSION}"])
    assert [case["by_session"] for case in written(unseen)["cases"]] == [True, False]


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


def test_under_whichever_name(unseen: pytest.Pytester) -> None:
    unseen.makepyfile("def test_it(dsocr_report, dsocr_check): dsocr_check(dsocr_report)")
    for conftest in ("", OWN_FIXTURE):
        unseen.makeconftest(conftest)
        result = run(unseen, SESSION, subject="pytest_dsocr.subjects.session:session_subject")
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["NOT-COMPARED: *the session is the subject itself*"])


def test_the_error_that_newcomers_meet_names_the_session(unseen: pytest.Pytester) -> None:
    result = run(unseen, CASE)
    assert result.ret == FAILED
    error = f"{NOT_HELD}add it with: dsocr vendor record; {STAND_IN}; {MAY_MISS}"
    commands = ["next *", "    dsocr vendor record *", "next *", f"    pytest *{SESSION}"]
    result.stdout.fnmatch_lines([error, *commands])
    result = run(unseen, CASE, "-k", "test_text", subject="session")
    assert result.ret == FAILED, "of the session itself it is no way out"
    result.stdout.fnmatch_lines([f"{NOT_HELD}add it with: dsocr vendor record; {MAY_MISS}"])
    result.stdout.no_fnmatch_line(f"*{SESSION}*")


def test_where_no_recording_is_of_the_runs_key_the_session_is_named_and_stands_in(unseen: pytest.Pytester) -> None:
    other = ("--dsocr-dtype=bfloat16", SHORT, CASE, "-k", "test_text")
    result = run(unseen, *other)
    assert result.ret == FAILED
    result.stdout.fnmatch_lines([f"* does not hold *{STAND_IN}*"])
    result = run(unseen, *other, SESSION)
    assert result.ret == PASSED
    result.stdout.fnmatch_lines([f"reference       {BY_SESSION}, mini/cpu-bfloat16-eager (no recording*"])


def test_a_damaged_recording_is_not_passed_over_for_the_session(unseen: pytest.Pytester) -> None:
    damaged = unseen.mkdir("golden") / "vendor" / "mini" / "cpu-float32-eager"
    damaged.mkdir(parents=True)
    (damaged / "manifest.json").write_text("{}")
    result = run(unseen, CASE, SESSION, "--dsocr-golden=golden")
    assert result.ret == FAILED
    result.stdout.fnmatch_lines(["*manifest.json is damaged*"])


def test_snapshots_need_no_reference(unseen: pytest.Pytester) -> None:
    """Of any subject, the session among them, on a page that nobody recorded; and they are held from then on."""
    for subject in (ONE_METHOD, "session"):
        first = run(unseen, SNAPSHOTS, "--dsocr-golden=mine", SHORT, "--snapshot-update", subject=subject)
        again = run(unseen, SNAPSHOTS, "--dsocr-golden=mine", SHORT, subject=subject)
        assert (first.ret, again.ret) == (PASSED, PASSED)
        assert again.parseoutcomes()["passed"] == (3 if subject == "session" else 1)
    moved = run(unseen, SNAPSHOTS, "--dsocr-golden=mine", SHORT, "-k", "reading", subject=SEPARATE)
    moved.assert_outcomes(failed=1)


def test_what_looks_at_recordings_alone_says_that_there_is_none(unseen: pytest.Pytester) -> None:
    result = run(unseen, VENDOR, SESSION, "-k", "answers_for_this_run", "-rs")
    result.assert_outcomes(skipped=1)
    assert result.ret == FAILED, "nothing was compared"
    result = run(unseen, VENDOR, SESSION, "-k", "answers_for_this_run", AS_RECORDED, f"--dsocr-pages={recorded_page()}")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["2 comparisons: 2 MATCH"])
