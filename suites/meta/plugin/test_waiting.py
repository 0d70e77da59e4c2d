"""A run that loads something long says so on its terminal, and its workers share the cores."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_dsocr.waiting import Waiting
from suites.meta.plugin.conftest import TEST_TEXT, Repository

SLOW_SUBJECT = """
    import time
    from standin import Reader

    class Slow(Reader):
        def __init__(self):
            time.sleep(6)

"""
HALF = max(1, len(os.sched_getaffinity(0)) // 2)
ASKS_THREADS = """
    import os, pytest, torch

    @pytest.mark.parametrize("page", range(4))
    def test_threads(dsocr_subject, page):
        told = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
        assert told == eval(os.environ["EXPECTED"]), told
"""


@pytest.mark.parametrize("arguments", [(), ("-s",), ("-n", "1")], ids=["here", "without capture", "on a worker"])
def test_a_long_wait_is_told_on_the_terminal(repository: Repository, arguments: Sequence[str]) -> None:
    repository.pytester.makepyfile(slow=SLOW_SUBJECT)
    result = repository.run(TEST_TEXT, "--dsocr-subject=slow:Slow", *arguments, apart=True)
    result.assert_outcomes(passed=1)
    worker = "gw0 " if "-n" in arguments else ""
    told = rf"dsocr: {worker}waiting \d+ s for the subject, slow:Slow on mini, cpu, float32"
    assert [line for line in result.errlines if re.fullmatch(told, line)]
    assert "waiting" not in result.stdout.str()


def test_a_short_one_is_not(repository: Repository) -> None:
    result = repository.run(TEST_TEXT, apart=True)
    result.assert_outcomes(passed=1)
    assert "waiting" not in result.stderr.str() + result.stdout.str()


def test_a_longer_one_is_told_again_with_its_progress(tmp_path: Path) -> None:
    with (tmp_path / "told").open("wb", buffering=0) as file:
        with Waiting("weights\x1b[2J", file.fileno(), first_s=0.1, every_s=0.2) as waiting:
            time.sleep(0.2)
            waiting.on_progress("loading", 30, 60)
            time.sleep(0.4)
        told = (tmp_path / "told").read_text().split()
        time.sleep(0.3)
        assert (tmp_path / "told").read_text().split() == told, "when it is over nothing more is told"
    lines = [line for line in (tmp_path / "told").read_text().splitlines() if line]
    assert lines[0] == "dsocr: waiting 0 s for weights\\x1b[2J".replace("waiting", f"{worker_name()}waiting")
    assert lines[1].endswith(", loading 50%")


def worker_name() -> str:
    name = os.environ.get("PYTEST_XDIST_WORKER", "")
    return f"{name} " if name else ""


@pytest.mark.parametrize(
    ("given", "arguments", "expected"),
    [
        (
            None,
            ("-n", "2"),
            f"({HALF}, '{HALF}')",
        ),
        ("1", ("-n", "2"), "(1, '1')"),
        (None, ("-n", "1"), "(torch.get_num_threads(), None)"),
        (None, (), "(torch.get_num_threads(), None)"),
    ],
)
def test_workers_share_the_cores(
    repository: Repository,
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    arguments: Sequence[str],
    expected: str,
) -> None:
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setenv("EXPECTED", expected)
    result = repository.run(ASKS_THREADS, *arguments, apart=True)
    result.assert_outcomes(passed=4)
