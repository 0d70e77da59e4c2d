"""A call that takes too long is ended where it stands, and the process where that cannot be."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from pytest_dsocr.foundation.errors import traced
from pytest_dsocr.observation.level import SubjectHungError
from pytest_dsocr.subjects.calls import Watch, at_stage, watching
from tests.plugin.misdeeds import DEEDS

LIMIT_S = 0.4
SCRIPT = """
import sys
from pytest_dsocr.subjects.calls import at_stage
from pytest_dsocr.subjects.calls import watching
from tests.plugin.misdeeds import DEEDS

with watching([]) as watch:
    watch.limit(float(sys.argv[2]))
    with at_stage("vision", "vision"):
        DEEDS[sys.argv[1]]()
"""


@pytest.fixture
def watch() -> Iterator[Watch]:
    with watching([]) as watch:
        watch.limit(LIMIT_S, last_resort=False)  # this process may have to wait for its turn for longer than that
        yield watch


@pytest.mark.parametrize("deed", ["sleep", "loop", "lock"])
def test_it_is_interrupted_and_told_with_the_stage_and_the_stack(watch: Watch, deed: str) -> None:
    with pytest.raises(SubjectHungError) as caught, at_stage("vision", "vision"):
        DEEDS[deed]()
    assert caught.value.stage == "vision"
    assert str(caught.value).startswith("the subject's vision did not return in vision within 0.4 s and was")
    assert caught.value.__cause__ is not None
    assert "misdeeds.py" in traced(caught.value.__cause__)


def test_the_message_of_an_error_may_hang_as_well(watch: Watch) -> None:
    class EndlessError(Exception):
        def __str__(self) -> str:
            time.sleep(600)
            return ""

    with pytest.raises(SubjectHungError), at_stage("vision", "vision"):
        raise EndlessError


def test_time_is_counted_from_call_to_call(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watcher is asleep when a call begins, and wakes in time for it."""
    now_s = 0.0
    monkeypatch.setattr("pytest_dsocr.subjects.time_limit.time", SimpleNamespace(monotonic=lambda: now_s))
    for _ in range(4):
        with at_stage("decode", "step"):
            now_s += 0.6 * LIMIT_S

    def hang() -> None:
        nonlocal now_s
        now_s += LIMIT_S
        DEEDS["sleep"]()

    with pytest.raises(SubjectHungError), at_stage("decode", "step"):
        hang()


def test_nothing_is_interrupted_but_a_call(watch: Watch) -> None:
    with at_stage("decode", "step"):
        pass
    time.sleep(2 * LIMIT_S)
    os.kill(os.getpid(), signal.SIGURG)
    with at_stage("decode", "step"):
        os.kill(os.getpid(), signal.SIGURG)


def test_what_somebody_else_watches_may_take_its_time(watch: Watch) -> None:
    with at_stage("read", "read"), watch.unlimited():
        time.sleep(2 * LIMIT_S)


def test_without_a_run_nobody_waits_and_nothing_is_started() -> None:
    before = threading.enumerate()
    with watching([]), at_stage("read", "read"):
        assert threading.enumerate() == before


def test_the_run_within_a_run_has_a_limit_of_its_own(watch: Watch) -> None:
    with watching([]) as inner:
        inner.limit(600, last_resort=False)
        with at_stage("read", "read"):
            time.sleep(2 * LIMIT_S)
    with pytest.raises(SubjectHungError), at_stage("read", "read"):
        DEEDS["sleep"]()


def test_signals_are_as_they_were(watch: Watch) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGURG, signal.SIGALRM, signal.SIGINT)]
    with at_stage("read", "read"):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert [signal.getsignal(number) for number in (signal.SIGURG, signal.SIGALRM, signal.SIGINT)] == before


@pytest.mark.usefixtures("cold")
def test_one_that_stops_itself_is_killed_and_its_guard_is_gone() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, "stop", "1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert re.search(
        r"dsocr: process \d+ is stopped, or stuck, within a call of the subject's; it is killed", done.stderr
    )
