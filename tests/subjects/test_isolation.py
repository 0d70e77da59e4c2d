"""A subject in a process of its own: its end, however it comes, costs one call."""

import importlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError, has_ended_cuda, traced
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.config import SubjectFaultError, SubjectHungError
from pytest_dsocr.subjects.calls import CallWatch, current, end, watching
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.isolation.child import SubjectServer
from pytest_dsocr.subjects.isolation.subject import ANOTHER, IsolatedSubject
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.loading import BY_ENGINE, close_subject
from pytest_dsocr.subjects.protocol import Setup
from tests.base.test_words import accelerator
from tests.hardening.misdeeds import Staged
from tests.processes import await_, await_ended
from tests.subjects.conftest import CASE, LIMIT_S, STAGED, Misdo

TINY = Setup("synthetic:tiny")
HELD = """
import sys, time
from pytest_dsocr.subjects.isolation.subject import IsolatedSubject
from pytest_dsocr.subjects.protocol import Setup

subject = IsolatedSubject(sys.argv[1], Setup(), 600)
print(subject.pid, flush=True)
subject.read(None, prompt="", preset=None, max_new_tokens=1)
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("stage", "deed", "how"),
    [
        ("tokenizer", "segfault", "was killed by SIGSEGV"),
        ("vision", "close everything", "ended with status [01]"),  # as it next reads, or next writes
    ],
)
def test_its_end_is_an_error_of_the_stage_and_the_next_call_has_another(
    watch: CallWatch, misdo: Misdo, staged: CheckedSubject, stage: str, deed: str, how: str
) -> None:
    misdo(f"{stage}:{deed}")
    with pytest.raises(SubjectFaultError) as caught:
        walk(staged)
    assert caught.value.stage == stage
    assert str(caught.value).startswith(f"the subject's process ended in {stage}, under ")
    assert re.search(f": it {how}; see what it said last", str(caught.value))
    [note] = watch.notes
    assert re.fullmatch(f"the subject's process {how} in {stage}; another is started for what comes after", note)
    if deed == "segfault":
        assert caught.value.__cause__ is not None
        assert "misdeeds.py" in traced(caught.value.__cause__)
    misdo("")
    walk(staged)


class Asserting(Staged):
    """Ends CUDA for its process in ``vision``: from then on every call fails, as every use of the GPU would."""

    is_lost = False

    def inputs(self, page: Path, **how: Any) -> dict[str, torch.Tensor]:
        if self.is_lost:
            raise accelerator(710)
        return super().inputs(page, **how)

    def vision(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self.is_lost = True
        raise accelerator(710)


def test_a_process_without_cuda_is_replaced(watch: CallWatch) -> None:
    subject: Any = IsolatedSubject(f"{__name__}:{Asserting.__name__}", Setup(), LIMIT_S)
    asked = CheckedSubject(subject)
    for _ in range(2):  # the second time in the other process
        inputs = asked.inputs(CASE)
        with pytest.raises(SubjectFaultError, match=r"vision raised in vision \(AcceleratorError") as caught:
            asked.vision(inputs)
        assert not has_ended_cuda(caught.value), "the run's own process has it still"
    assert watch.notes[-1] == f"the subject ended CUDA for its process in vision; {ANOTHER}"
    close_subject(subject)


def walk(subject: CheckedSubject) -> None:
    inputs = subject.inputs(CASE)
    state, _ = subject.prefill(inputs, subject.vision(inputs)["vision_fusion"])
    subject.step(state, 1)


@pytest.mark.parametrize("deed", ["c with the lock", "stop"])
def test_a_hang_is_reported_with_the_stack_and_leaves_no_process(
    watch: CallWatch, misdo: Misdo, staged: CheckedSubject, deed: str
) -> None:
    misdo(f"read:{deed}")
    staged.subject.limit_s = 0.2
    pid = staged.subject.pid
    with pytest.raises(SubjectHungError, match=r"did not return in read within 0\.2 s") as caught:
        staged.read(CASE)
    await_ended(pid)
    assert staged.subject.pid is None
    assert watch.notes == ["the subject's process hung and was ended in read; another is started for what comes after"]
    if deed != "stop":
        assert caught.value.__cause__ is not None
        assert "misdeeds.py" in traced(caught.value.__cause__)


@pytest.mark.dsocr_slow
@pytest.mark.usefixtures("watch", "_misdeed_file")
def test_a_state_whose_process_is_gone_is_an_error() -> None:
    """Start a new interpreter, because a forked process may exist for a moment after it is killed."""
    staged = CheckedSubject(cast("Any", IsolatedSubject(STAGED, Setup(), LIMIT_S)))
    state, _ = staged.prefill(staged.inputs(CASE), None)
    os.kill(staged.subject.pid, signal.SIGKILL)
    with pytest.raises(SubjectFaultError, match="it was killed by SIGKILL"):
        staged.step(state, 1)
    walk(staged)
    for ask in (lambda: staged.step(state, 1), lambda: KvProbe(state).lengths):
        with pytest.raises(SubjectFaultError, match=r"^the subject's process ended before "):
            ask()
    close_subject(staged.subject)


def test_it_ends_with_whoever_started_it(misdo: Misdo) -> None:
    misdo("read:c with the lock")
    Path(f"{os.environ['MISDEED_FILE']}.begun").unlink(missing_ok=True)
    held = subprocess.Popen([sys.executable, "-c", HELD, STAGED], stdout=subprocess.PIPE, text=True)
    assert held.stdout
    pid = int(held.stdout.readline())
    try:
        await_(Path(f"{os.environ['MISDEED_FILE']}.begun").exists)
        held.kill()
        held.wait()
        held.stdout.close()
        await_ended(pid)
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_one_that_does_not_load_in_time_is_reported(misdo: Misdo) -> None:
    misdo("load:sleep")
    message = f"^{STAGED} could not make its subject: it took more than 0.2 s; .*: --dsocr-start-limit=SECONDS"
    with pytest.raises(DsocrError, match=message):
        IsolatedSubject(STAGED, Setup(), LIMIT_S, start_limit_s=0.2)


@pytest.mark.dsocr_slow
def test_the_limit_of_a_call_is_none_of_loading(watch: CallWatch, misdo: Misdo) -> None:
    subject: Any = IsolatedSubject(STAGED, Setup(), 0.2)
    misdo("read:sleep")
    with pytest.raises(SubjectHungError, match=r"within 0\.2 s .*: --dsocr-subject-time-limit=SECONDS"):
        subject.read(CASE.page, prompt="", preset=CASE.preset, max_new_tokens=1)
    subject.start_limit_s = 0.1
    with pytest.raises(SubjectHungError, match=r"within 0\.1 s .*: --dsocr-start-limit=SECONDS"):
        subject.inputs(CASE.page, prompt="", preset=CASE.preset)


class Answers(list[Any]):
    """End of a pipe that keeps what is sent."""

    def send(self, kind: str, value: object = None) -> None:
        self.append((kind, value))


@pytest.mark.parametrize(("spec", "is_noted"), [("tests.hardening.cheats:Cheat", True), ("engine", False)])
def test_a_subject_whose_process_loads_the_engine_is_noted(spec: str, is_noted: bool) -> None:
    importlib.import_module(DEEPSEEK_OCR.model.partition(":")[0])
    answers: Any = Answers()
    with watching([]):
        server = SubjectServer(answers)
        how = {"spec": spec, "setup": asdict(TINY), "folder": str(Path.cwd()), "threads": None}
        server.answer({"what": "load", "stage": "load", "how": how, "hooks": [], "dropped": []})
        end(current())
    [(kind, answer)] = answers
    assert (kind, answer["notes"]) == ("answer", [BY_ENGINE] * is_noted)
