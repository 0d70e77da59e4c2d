"""Whatever a subject raises, wherever it does, is an error of its stage that can be shown; a Ctrl-C is the user's."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_dsocr.contract.presets import PRESETS
from pytest_dsocr.foundation.errors import traced
from pytest_dsocr.observation.case import Case
from pytest_dsocr.observation.level import SubjectFaultError
from pytest_dsocr.subjects.calls import COLUMNS, at_stage
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.loading import close_subject
from tests.plugin.misdeeds import DEEDS, Staged

CASE = Case(Path("page.png"), "<image>", PRESETS["tiny"], 4)


def _prefilled(asked: CheckedSubject) -> tuple[Any, Any]:
    return asked.prefill(asked.inputs(CASE), None)


CALLS: Mapping[str, Callable[[CheckedSubject, Path], object]] = {
    "read": lambda asked, _: asked.read(CASE),
    "tokenizer": lambda asked, _: asked.inputs(CASE),
    "vision": lambda asked, _: asked.vision(asked.inputs(CASE)),
    "prefill": lambda asked, _: _prefilled(asked),
    "decode": lambda asked, _: asked.step(_prefilled(asked)[0], 1),
    "postprocess": lambda asked, folder: asked.write("", CASE.page, folder),
    "close": lambda asked, _: close_subject(asked.subject),
}
"""Of each stage a call that comes to it."""
RAISING = (
    *("system exit", "keyboard interrupt", "skip", "fail", "exit", "generator exit", "stop iteration"),
    *("unspeakable", "rude", "huge", "many lines", "escapes"),
)


@pytest.mark.parametrize("deed", RAISING)
@pytest.mark.parametrize("stage", CALLS)
def test_whatever_it_raises_is_an_error_of_its_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stage: str, deed: str
) -> None:
    subject = CheckedSubject(Staged())
    monkeypatch.setenv("MISDEED", f"{stage}:{deed}")
    with pytest.raises(SubjectFaultError) as caught:
        CALLS[stage](subject, tmp_path)
    assert caught.value.stage == stage
    assert caught.value.__cause__ is not None
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 2 * COLUMNS
    trace = traced(caught.value.__cause__)
    assert "misdeeds.py" in trace
    assert len(trace) < 16_000
    assert all(line.isprintable() for line in trace.splitlines())


def _soon(act: Callable[[], None]) -> None:
    threading.Timer(0.2, act).start()


@pytest.mark.parametrize("deed", ["sleep", "deaf", "loop"])
def test_a_ctrl_c_is_the_users_whatever_the_subject_makes_of_it(monkeypatch: pytest.MonkeyPatch, deed: str) -> None:
    """The deaf one goes on until its time is up, in its own sense: what is left of it is made short here."""
    monkeypatch.setattr("tests.plugin.misdeeds.FOREVER_S", 1)
    _soon(lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), at_stage("read", "read"):
        DEEDS[deed]()
    assert signal.getsignal(signal.SIGINT) is before


def test_a_ctrl_c_counts_though_the_subject_raises_something_else() -> None:
    def clean_up() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
        finally:
            raise RuntimeError("interrupted, the engine is gone")

    with pytest.raises(KeyboardInterrupt), at_stage("read", "read"):
        clean_up()


def test_a_handler_of_the_users_own_that_does_not_interrupt_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))
    try:
        with at_stage("read", "read"):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]


def test_what_is_ours_already_is_not_told_again() -> None:
    fault = SubjectFaultError("vision", "as it was")
    with pytest.raises(SubjectFaultError) as caught, at_stage("read", "read"):
        raise fault
    assert caught.value is fault


def test_a_long_way_down_is_told_from_both_ends() -> None:
    def down(depth: int) -> None:
        if depth:
            (down, via)[depth % 2](depth - 1)
        raise ValueError("here")

    def via(depth: int) -> None:
        down(depth)

    with pytest.raises(ValueError, match="here") as caught:
        down(200)
    lines = traced(caught.value).splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[-1] == "ValueError: here"
    assert any(line.startswith("  ... ") and line.endswith(" lines ...") for line in lines)
