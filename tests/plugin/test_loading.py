"""Loading of both sides: elapsed time, progress of long waits, and threads."""

import os
import re
from textwrap import dedent

import pytest
import torch

from pytest_dsocr.plugin.loading import Waiting
from pytest_dsocr.report.times import PARTS
from tests.plugin.conftest import CONFTEST, TEST_TEXT, Repository

HEARD = """
    import os
    import threading
    from pytest_dsocr.plugin import loading

    loading.FIRST_S = 0.1
    loading.is_shown = threading.Event()
    write = os.write

    def heard(file, content):
        write(file, content)
        if b"waiting" in content:
            loading.is_shown.set()

    os.write = heard
"""
SLOW = """
    import time
    from pytest_dsocr.plugin import loading
    from standin import Reader

    class Slow(Reader):
        def __init__(self):
            loading.is_shown.wait()

        def read(self, page, **how):
            time.sleep(0.2)
            return self.text
"""
LOADING = """
        def __init__(self):
            loading.is_shown.wait()
"""
HALF = max(1, len(os.sched_getaffinity(0)) // 2)
ASKS_THREADS = """
    import os

    def test_threads(dsocr_subject):
        import torch
        told = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
        assert told == eval(os.environ["EXPECTED"]), told
"""

TELLS_TORCH = """
    import sys

    def pytest_unconfigure():
        print("torch is imported:", "torch" in sys.modules)
"""
"""Conftest that prints whether the controller, which needs no torch, has imported it."""


@pytest.mark.dsocr_slow
def test_a_long_wait_is_reported_and_loading_and_reading_are_distinguished(repository: Repository) -> None:
    """Look for the wait in the output of a worker that pytest captures."""
    repository.pytester.makepyfile(slow=SLOW)
    parts = CONFTEST.format(reference="Reference"), HEARD
    repository.pytester.makeconftest("\n".join(map(dedent, parts)))
    result = repository.run(TEST_TEXT, "--dsocr-subject=slow:Slow", "--dsocr-out=out", "-n", "1", apart=True)
    result.assert_outcomes(passed=1)
    message = r"dsocr: waiting \d+ s for the subject, slow:Slow on mini, cpu, float32 \(gw0\)"
    assert [line for line in result.errlines if re.fullmatch(message, line)]
    result.stdout.no_re_match_line(r".*waiting \d+ s for")
    result.stdout.fnmatch_lines(["time * s on *"])
    [one] = repository.result()["elapsed"]
    assert (one["worker"], one["device"], one["cases"]) == ("gw0", "cpu", 1)
    assert one["seconds"]["loading the subject"] > 0.05
    assert one["seconds"]["subject"] >= 0.2
    assert sum(one["seconds"].values()) == pytest.approx(one["elapsed_s"]), "nothing is left over"
    assert {*one["seconds"]} == {*PARTS, "tests"} - {"loading the reference", "explaining"}
    assert min(one["seconds"].values()) > 0


@pytest.mark.dsocr_slow
def test_how_far_a_run_is_gets_told_off_a_terminal(repository: Repository) -> None:
    """Look for the progress in captured output while a subject waits for that line."""
    repository.pytester.makepyfile(slow=SLOW.replace("time.sleep(0.2)", "loading.is_shown.wait()").replace(LOADING, ""))
    parts = (
        CONFTEST.format(reference="Reference"),
        HEARD.replace("FIRST_S", "progress.EVERY_S").replace("waiting", " ended"),
    )
    repository.pytester.makeconftest("\n".join(map(dedent, parts)))
    result = repository.run(TEST_TEXT, "--dsocr-subject=slow:Slow", apart=True)
    result.assert_outcomes(passed=1)
    assert [line for line in result.errlines if re.fullmatch(r"dsocr: \d+ s, 0 of 1 test ended", line)]


def test_what_is_waited_for_is_told_with_its_progress() -> None:
    waiting = Waiting("weights\x1b[2J")
    assert waiting.line(5) == r"dsocr: waiting 5 s for weights\x1b[2J"
    waiting.on_progress("loading", 30, 60)
    assert waiting.line(35) == r"dsocr: waiting 35 s for weights\x1b[2J, loading 50%"


@pytest.mark.dsocr_slow
def test_workers_share_the_cores_and_a_run_without_workers_has_them_all(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("EXPECTED", f"({torch.get_num_threads()}, None)")
    repository.run(ASKS_THREADS).assert_outcomes(passed=1)
    repository.pytester.makeconftest(TELLS_TORCH)
    monkeypatch.setenv("EXPECTED", f"({HALF}, '{HALF}')")
    result = repository.run(ASKS_THREADS, "-n", "2", apart=True)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["torch is imported: False"])
