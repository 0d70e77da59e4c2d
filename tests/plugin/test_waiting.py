"""A run that loads something long says so on its terminal, and its workers share the cores."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from pytest_dsocr.plugin.loading import Waiting
from tests.plugin.conftest import CONFTEST, TEST_TEXT, Repository
from tests.reference.played import await_

HEARD = """
    import os
    import threading
    from pytest_dsocr.plugin import waiting

    waiting.FIRST_S = {first_s}
    waiting.is_told = threading.Event()
    write = os.write

    def heard(file, content):
        write(file, content)
        if b"waiting" in content:
            waiting.is_told.set()

    os.write = heard
"""
SLOW_SUBJECT = """
    from pytest_dsocr.plugin import waiting
    from standin import Reader

    class Slow(Reader):
        def __init__(self):
            waiting.is_told.wait()

"""
HALF = max(1, len(os.sched_getaffinity(0)) // 2)
ASKS_THREADS = """
    import os

    def test_threads(dsocr_subject):
        import torch
        told = torch.get_num_threads(), os.environ.get("OMP_NUM_THREADS")
        assert told == eval(os.environ["EXPECTED"]), told
"""


@pytest.mark.parametrize("arguments", [(), ("-s",), ("-n", "1")], ids=["here", "without capture", "on a worker"])
def test_a_long_wait_is_told_on_the_terminal(repository: Repository, arguments: Sequence[str]) -> None:
    repository.pytester.makepyfile(slow=SLOW_SUBJECT)
    waits_for(repository, 0.1)
    result = repository.run(TEST_TEXT, "--dsocr-subject=slow:Slow", *arguments, apart=True)
    result.assert_outcomes(passed=1)
    worker = r" \(gw0\)" if "-n" in arguments else ""
    told = rf"dsocr: waiting \d+ s for the subject, slow:Slow on mini, cpu, float32{worker}"
    assert [line for line in result.errlines if re.fullmatch(told, line)]
    assert "waiting" not in result.stdout.str()


def waits_for(repository: Repository, first_s: float) -> None:
    parts = CONFTEST.format(reference="Reference"), HEARD.format(first_s=first_s)
    repository.pytester.makeconftest("\n".join(map(dedent, parts)))


def test_a_short_one_is_not(repository: Repository) -> None:
    waits_for(repository, 6000)
    result = repository.run(TEST_TEXT, apart=True)
    result.assert_outcomes(passed=1)
    assert "waiting" not in result.stderr.str() + result.stdout.str()


def test_a_longer_one_is_told_again_with_its_progress(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with told.open("wb", buffering=0) as file:
        with Waiting("weights\x1b[2J", file.fileno(), first_s=0.1, every_s=0.1) as waiting:
            await_(lambda: "waiting" in told.read_text())
            waiting.on_progress("loading", 30, 60)
            await_(lambda: "50%" in told.read_text())
        at_the_end = told.read_text()
        time.sleep(0.3)
        assert told.read_text() == at_the_end, "when it is over nothing more is told"
    lines = [line for line in at_the_end.splitlines() if line]
    assert re.fullmatch(r"dsocr: waiting \d+ s for weights\\x1b\[2J", lines[0])
    assert re.fullmatch(r"dsocr: waiting \d+ s for weights\\x1b\[2J, loading 50%", lines[-1])


@pytest.mark.parametrize(
    ("given", "arguments", "expected"),
    [
        (
            None,
            ("-n", "2"),
            f"({HALF}, '{HALF}')",
        ),
        ("1", ("-n", "2"), "(1, '1')"),
    ],
)
def test_workers_share_the_cores(
    repository: Repository,
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    arguments: Sequence[str],
    expected: str,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if given:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setenv("EXPECTED", expected)
    repository.pytester.makeconftest("")  # which imports no torch, as an interpreter does only where it has to
    result = repository.run(ASKS_THREADS, *arguments, apart=True)
    result.assert_outcomes(passed=1)


def test_a_run_without_workers_has_them_all(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("EXPECTED", f"({torch.get_num_threads()}, None)")
    repository.run(ASKS_THREADS).assert_outcomes(passed=1)
