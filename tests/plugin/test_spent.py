"""A run says where its time went, process by process; and a live reference is loaded while the subject is."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from pytest_dsocr.report.times import PARTS
from suites.contract.pages import write_page
from tests.plugin.conftest import TEST_TEXT, Repository
from tests.reference.conftest import STAND_IN

SLOW = """
    import time
    import standin

    class Slow(standin.Reader):
        def __init__(self):
            time.sleep(0.4)

        def read(self, page, **how):
            time.sleep(0.2)
            return self.text
"""
WATCHFUL = """
    import threading

    class Watchful:
        def __init__(self):
            assert "dsocr-reference" in {thread.name for thread in threading.enumerate()}, "not begun"

        def read(self, page, **how):
            return ""
"""

BESIDE = """
    from threading import Event

    from pytest_dsocr.reference.live import LiveReference

    at_work, may_go_on, observe = Event(), Event(), LiveReference.observe
    WITHIN_S = {within_s}

    def held(self, case, **how):
        if case.page.stem == "z":
            at_work.set()
            may_go_on.wait(WITHIN_S)
        return observe(self, case, **how)

    LiveReference.observe = held

    class Beside:
        def read(self, page, **how):
            if page.stem == "page":
                print("the reference is at work:", at_work.wait(WITHIN_S))
                may_go_on.set()
            return ""
"""


def test_the_summary_has_a_line_of_it(repository: Repository) -> None:
    repository.run(TEST_TEXT).stdout.fnmatch_lines(["time * s on 1 worker: *"])


def spent(repository: Repository, *arguments: str, apart: bool = False) -> list[dict[str, Any]]:
    repository.run(TEST_TEXT, "--dsocr-out=out", *arguments, apart=apart)
    result = json.loads((repository.pytester.path / "out" / "dsocr.json").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = result["spent"]
    return found


def test_loading_and_reading_are_told_apart(repository: Repository) -> None:
    repository.pytester.makepyfile(slow=SLOW)
    [one] = spent(repository, "--dsocr-subject=slow:Slow")
    assert (one["worker"], one["device"], one["cases"]) == ("", "cpu", 1)
    assert one["seconds"]["loading the subject"] >= 0.4
    assert one["seconds"]["subject"] >= 0.2
    assert sum(one["seconds"].values()) == pytest.approx(one["elapsed_s"]), "nothing is left over"
    assert {*one["seconds"]} == {*PARTS, "tests"} - {"loading the reference", "explaining"}
    assert min(one["seconds"].values()) > 0


def test_each_worker_tells_its_own(repository: Repository) -> None:
    for name in ("b", "c"):
        (repository.pytester.path / f"{name}.png").write_bytes((repository.pytester.path / "page.png").read_bytes())
    pages = [f"--dsocr-pages={name}.png" for name in ("page", "b", "c")]
    found = spent(repository, "-n", "2", *pages, apart=True)
    assert [one["worker"] for one in found] == ["gw0", "gw1"]
    assert sum(one["cases"] for one in found) == 3


def test_a_live_reference_is_begun_before_the_subject_is_loaded(
    repository: Repository, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("")
    pytester.makepyfile(watchful=WATCHFUL)
    named = (f"--dsocr-reference={STAND_IN}", f"--dsocr-vendor-env={sys.prefix}", "--dsocr-max-new-tokens=2")
    told = repository.run(TEST_TEXT, *named, "--dsocr-subject=watchful:Watchful", "--dsocr-checkpoint=synthetic:tiny")
    told.assert_outcomes(failed=1)
    told.stdout.fnmatch_lines("*reference       live*")
    assert "not begun" not in told.stdout.str()


@pytest.mark.parametrize(
    ("more", "within_s", "is_at_work"),
    [("", 600, True), ("\n    def test_time(dsocr_stage_timer):\n        pass\n", 0.1, False)],
    ids=["the next page", "not beside a test that takes times"],
)
def test_both_sides_work_at_the_same_time(
    more: str, within_s: float, is_at_work: bool, repository: Repository, pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("")
    pytester.makepyfile(beside=BESIDE.format(within_s=within_s))
    write_page("tiny", pytester.path).rename(pytester.path / "z.png")
    named = (f"--dsocr-reference={STAND_IN}", f"--dsocr-vendor-env={sys.prefix}", "--dsocr-max-new-tokens=2")
    pages = ("--dsocr-pages=page.png", "--dsocr-pages=z.png", "--dsocr-fresh", "--dsocr-subject=beside:Beside", "-s")
    told = repository.run(TEST_TEXT + more, *named, *pages, "--dsocr-checkpoint=synthetic:tiny")
    told.assert_outcomes(failed=2, passed=1 if more else 0)
    told.stdout.fnmatch_lines(f"*the reference is at work: {is_at_work}")


def test_a_live_reference_that_cannot_be_begun_is_told(repository: Repository, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("")
    python = pytester.path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/bin/false")
    named = (f"--dsocr-reference={STAND_IN}", "--dsocr-vendor-env=env", "--dsocr-checkpoint=synthetic:tiny")
    told = repository.run(TEST_TEXT, *named)
    told.assert_outcomes(errors=1)
    assert "the vendor's worker could not answer" in " ".join(told.stdout.str().split())
