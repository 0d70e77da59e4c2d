"""Calls of a subject: what it raises is an error of its stage, what it changes is put back, what hangs is ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.base.errors import traced
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import SubjectFaultError, SubjectHungError
from pytest_dsocr.subjects.calls import COLUMNS, CallWatch, at_stage, watching
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.loading import close_subject
from pytest_dsocr.subjects.surroundings import ALL
from pytest_dsocr.subjects.time_limit import INTERRUPT
from tests.hardening.misdeeds import DEEDS, Staged
from tests.timing.made import Clock

CASE = Case(Path("page.png"), "<image>", DEEPSEEK_OCR.presets["tiny"], 4, DEEPSEEK_OCR)


def _prefilled(asked: CheckedSubject) -> tuple[Any, Any]:
    return asked.prefill(asked.inputs(CASE), None)


CALLS: Mapping[str, Callable[[CheckedSubject, Path], object]] = {
    "read": lambda asked, _: asked.read(CASE),
    "tokenizer": lambda asked, _: asked.inputs(CASE),
    "vision": lambda asked, _: asked.vision(asked.inputs(CASE)),
    "prefill": lambda asked, _: _prefilled(asked),
    "decode": lambda asked, _: asked.step(_prefilled(asked)[0], 1),
    "postprocess": lambda asked, folder: asked.write("", CASE.page, folder, "result.mmd"),
    "close": lambda asked, _: close_subject(asked.subject),
}
"""A call that reaches each stage."""
RAISING = ("system exit", "skip", "generator exit", "unspeakable", "rude", "many lines", "escapes")


@pytest.mark.parametrize("stage", CALLS)
def test_whatever_it_raises_is_an_error_of_its_stage(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stage: str
) -> None:
    subject = CheckedSubject(Staged())
    for deed in RAISING:
        monkeypatch.setenv("MISDEED", f"{stage}:{deed}")
        with pytest.raises(SubjectFaultError) as caught:
            CALLS[stage](subject, tmp_path)
        assert caught.value.stage == stage
        assert caught.value.__cause__ is not None
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 2 * COLUMNS
        assert "misdeeds.py" in traced(caught.value.__cause__)
    own = SubjectFaultError("vision", "as it was")
    with pytest.raises(SubjectFaultError) as caught, at_stage(stage, "read"):
        raise own
    assert caught.value is own


def test_a_ctrl_c_is_the_users() -> None:
    with pytest.raises(KeyboardInterrupt), at_stage("read", "read"):
        signal.raise_signal(signal.SIGINT)


CHANGES = ("chdir", "path", "dtype", "device", "grad", "precision", "deterministic", "threads", "environment")
STATE = dict(zip(CHANGES, ALL, strict=True))
"""The state that each deed changes."""


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[CallWatch]:
    monkeypatch.delenv("NEW_VARIABLE", raising=False)
    with watching([]) as watch:
        yield watch


@pytest.mark.parametrize("deed", STATE)
def test_it_is_its_own_while_it_runs_and_nobody_elses(watch: CallWatch, deed: str) -> None:
    name, read = STATE[deed].name, STATE[deed].get
    ours = read()
    found = []

    def broken() -> None:
        DEEDS[deed]()
        found.append(read())
        raise RuntimeError

    with pytest.raises(SubjectFaultError), at_stage("vision", "vision"):
        broken()
    [expected] = found
    assert expected != ours
    assert read() == ours
    for _ in range(2):
        with at_stage("prefill", "prefill"):
            assert read() == expected
        assert read() == ours
    [note] = [note for note in watch.notes if note.startswith(f"the subject's vision changed {name} ")]
    assert note.endswith("; the run keeps its own")
    if deed != "environment":  # which is slow to look at
        with watching([]) as quick, at_stage("decode", "step"):
            DEEDS[deed]()
        assert read() == ours
        assert len(quick.notes) == 1


def test_a_folder_that_it_deletes_is_no_harm(watch: CallWatch, tmp_path: Path) -> None:
    ours, expected = Path.cwd(), tmp_path / "expected"
    expected.mkdir()
    with at_stage("vision", "vision"):
        os.chdir(expected)
        expected.rmdir()
    assert Path.cwd() == ours
    with at_stage("vision", "vision"):
        torch.ones(2) @ torch.ones(2)
    assert Path.cwd() == ours
    assert len(watch.notes) == 1, "one that changes nothing leaves no note"


LIMIT_S = 0.1
SCRIPT = """
import sys
from pytest_dsocr.subjects.calls import at_stage
from pytest_dsocr.subjects.calls import watching
from tests.hardening.misdeeds import DEEDS

with watching([]) as limited:
    limited.limit(1)
    with at_stage("vision", "vision"):
        DEEDS[sys.argv[1]]()
"""


@pytest.fixture
def limited() -> Iterator[CallWatch]:
    with watching([]) as limited:
        limited.limit(LIMIT_S, grace_s=600)  # this process may have to wait for its turn
        yield limited


@pytest.mark.parametrize("deed", ["sleep", "loop", "lock"])
def test_it_is_interrupted_and_reported_with_the_stage_and_the_stack(limited: CallWatch, deed: str) -> None:
    with pytest.raises(SubjectHungError) as caught, at_stage("vision", "vision"):
        DEEDS[deed]()
    assert caught.value.stage == "vision"
    assert str(caught.value).startswith("the subject's vision did not return in vision within 0.1 s and was")
    assert caught.value.__cause__ is not None
    assert "misdeeds.py" in traced(caught.value.__cause__)


def test_the_message_of_an_error_may_hang_as_well(limited: CallWatch) -> None:
    class EndlessError(Exception):
        def __str__(self) -> str:
            time.sleep(600)
            return ""

    with pytest.raises(SubjectHungError), at_stage("vision", "vision"):
        raise EndlessError


CALL_S, LOADING_S = 1000.0, 9000.0
Passes = Callable[[float], None]


@pytest.fixture
def passes(limited: CallWatch) -> Passes:
    """Return a function that advances the run's clock and interrupts the call, like the guard."""
    clock = Clock()
    limited.limit(CALL_S, LOADING_S, now=lambda: clock.perf_counter_ns() / 1e9)

    def passes(seconds: float) -> None:
        clock.sleep(seconds)
        os.kill(os.getpid(), INTERRUPT)
        time.sleep(0)  # where the signal is taken

    return passes


@pytest.mark.parametrize(
    ("stage", "limit_s", "option"), [("decode", CALL_S, "subject-time-limit"), ("load", LOADING_S, "start-limit")]
)
def test_time_is_counted_from_call_to_call_by_the_limit_of_the_stage(
    passes: Passes, stage: str, limit_s: float, option: str
) -> None:
    for _ in range(4):
        with at_stage(stage, "method"):
            passes(0.9 * limit_s)
    with pytest.raises(SubjectHungError, match=f"--dsocr-{option}"), at_stage(stage, "method"):
        passes(limit_s)


def test_nothing_is_interrupted_but_a_call_and_what_somebody_else_watches_may_take_its_time(
    limited: CallWatch, passes: Passes
) -> None:
    with at_stage("decode", "step"):
        with limited.unlimited():
            passes(2 * CALL_S)
        passes(0.9 * CALL_S)
    passes(2 * CALL_S)
    with at_stage("decode", "step"):
        passes(0)


def test_the_run_within_a_run_has_a_limit_of_its_own(limited: CallWatch) -> None:
    with watching([]) as inner:
        inner.limit(600)
        with at_stage("read", "read"):
            time.sleep(2 * LIMIT_S)
    with pytest.raises(SubjectHungError), at_stage("read", "read"):
        DEEDS["sleep"]()


@pytest.mark.dsocr_slow
def test_one_that_cannot_be_interrupted_is_killed() -> None:
    runs = {
        deed: subprocess.Popen([sys.executable, "-c", SCRIPT, deed], stderr=subprocess.PIPE, text=True)
        for deed in ("stop", "c with the lock")
    }
    for deed, run in runs.items():
        _, message = run.communicate()
        assert run.returncode == -signal.SIGKILL
        assert "dsocr: the subject's vision in vision took more than 1 s and cannot be interrupted" in message
        assert ("misdeeds.py" in message) is (deed != "stop"), "what is stopped writes no stack"
