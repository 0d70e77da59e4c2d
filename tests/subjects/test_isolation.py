"""A subject in a process of its own: it answers as it does here, and its end, however it comes, costs one call."""

import gc
import importlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError, has_ended_cuda, traced
from pytest_dsocr.explain.parts import parts_of
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.records.block_seams import watch_deep
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Level, SubjectFaultError, SubjectHungError
from pytest_dsocr.subjects.calls import CallWatch, current, end, watching
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.isolation.child import SubjectServer
from pytest_dsocr.subjects.isolation.subject import ANOTHER, IsolatedSubject
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.loading import BY_ENGINE, close_subject, load_subject, open_subject
from pytest_dsocr.subjects.protocol import Setup, level_of
from tests.base.test_words import accelerator
from tests.crops import cropped_case
from tests.hardening.misdeeds import Staged
from tests.processes import await_, await_ended

STAGED = "tests.hardening.misdeeds:Staged"
CASE = Case(Path("page.png"), "<image>", DEEPSEEK_OCR.presets["tiny"], 4, DEEPSEEK_OCR)
TINY = Setup("synthetic:tiny")
LIMIT_S = 600.0
Misdo = Callable[[str], object]
HELD = """
import sys, time
from pytest_dsocr.subjects.isolation.subject import IsolatedSubject
from pytest_dsocr.subjects.protocol import Setup

subject = IsolatedSubject(sys.argv[1], Setup(), 600)
print(subject.pid, flush=True)
subject.read(None, prompt="", preset=None, max_new_tokens=1)
time.sleep(600)
"""


@pytest.fixture
def watch() -> Iterator[CallWatch]:
    with watching([]) as watch:
        yield watch


@pytest.fixture(scope="module")
def _misdeed_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    file = tmp_path_factory.mktemp("misdeed") / "misdeed"
    file.touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MISDEED_FILE", str(file))
        yield file


@pytest.fixture(scope="module")
def _staged(_misdeed_file: Path) -> Iterator[CheckedSubject]:
    subject: Any = IsolatedSubject(STAGED, Setup(), LIMIT_S)
    yield CheckedSubject(subject)
    subject.close()


@pytest.fixture
def misdo(_misdeed_file: Path) -> Iterator[Misdo]:
    """Have the subject do a deed at a stage from now on."""
    yield _misdeed_file.write_text
    _misdeed_file.write_text("")


@pytest.fixture
def staged(watch: CallWatch, misdo: Misdo, _staged: CheckedSubject) -> Iterator[CheckedSubject]:
    """Return a subject with a running process."""
    _staged.inputs(CASE)
    watch.notes.clear()
    yield _staged
    _staged.subject.limit_s = LIMIT_S


@pytest.fixture(scope="module")
def isolated() -> Iterator[Any]:
    subject: Any = open_subject("engine", TINY, LIMIT_S)
    yield subject
    close_subject(subject)


@pytest.fixture(scope="module")
def here() -> Any:
    return load_subject("engine", TINY)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return cropped_case(tmp_path_factory.mktemp("pages"), "free", 4)


def test_it_offers_what_it_offers_here(isolated: Any, here: Any, staged: CheckedSubject) -> None:
    assert level_of(isolated) == Level.MODULES
    assert (isolated.dtype, isolated.policy, tuple(isolated.seams)) == (here.dtype, here.policy, tuple(here.seams))
    assert staged.level == Level.STAGES
    assert (staged.policy, staged.writes, staged.tells_text) == (None, True, True)
    with pytest.raises(AttributeError):
        _ = staged.subject.module


class Telling(Staged):
    """Declares its precision, sets attributes as its methods return, and has chosen its tokens."""

    precision = "int8"

    def announce(self, page: Path, *, token_ids: list[int], **how: Any) -> None:
        self.announced = token_ids

    def inputs(self, page: Path, **how: Any) -> dict[str, torch.Tensor]:
        self.not_offered = frozenset({"dtypes"})
        return super().inputs(page, **how)

    def read(self, page: Path, **how: Any) -> str:
        self.first_token_ms, self.ended_by = 1.5, f"token {self.announced[-1]}"
        return super().read(page, **how)

    def prefill(self, *given: Any) -> Any:
        state = super().prefill(*given)
        state.chosen = (7,)
        return state


def test_what_it_declares_and_what_its_methods_set_is_known_here() -> None:
    subject: Any = IsolatedSubject(f"{__name__}:{Telling.__name__}", Setup(), LIMIT_S)
    asked: Any = CheckedSubject(subject)
    assert (subject.precision, asked.not_offered, asked.first_token_ms, asked.ended_by) == ("int8", set(), None, "")
    asked.announce(CASE, (5, 6))
    asked.read(CASE)
    state, _ = asked.prefill(asked.inputs(CASE, partial=True), None)
    assert state.chosen == [7]
    assert (asked.not_offered, asked.first_token_ms, asked.ended_by) == ({"dtypes"}, 1.5, "token 6")
    subject.close()


def test_blocks_are_seen_with_their_inputs_as_they_are_here(isolated: Any, here: Any, case: Case) -> None:
    asked = [CheckedSubject(one) for one in (isolated, here)]
    own, right = (parts_of(one, one.inputs(case)) for one in asked)
    assert [one.name for one in own] == [one.name for one in right]
    assert {one.stage for one in own if one.depth is not None} == {"sam", "clip", "prefill"}
    for mine, other in zip(own, right, strict=True):
        pairs = zip((mine.gave, *mine.given), (other.gave, *other.given), strict=True)
        assert all(torch.equal(*pair) for pair in pairs), mine.name


def test_every_tensor_is_the_same_to_the_bit(isolated: Any, here: Any, case: Case, tmp_path: Path) -> None:
    found: list[tuple[Any, Any, Any, list[torch.Tensor]]] = []
    for subject in map(CheckedSubject, (isolated, here)):
        inputs = subject.inputs(case)
        with torch.no_grad(), watch_deep(subject.subject.module) as deep:
            vision = subject.vision(inputs)
            state, logits = subject.prefill(inputs, vision["vision_fusion"])
        steps = [subject.step(state, token) for token in (5, 6)]
        cache = state.cache
        held = [tensor for layer in range(cache.layers) for tensor in (cache.keys(layer), cache.values(layer))]
        tensors = [*inputs.values(), *vision.values(), logits, *steps, *held]
        texts = subject.read(case), subject.text_of([5, 6]), *subject.read_many([case, case])
        subject.write(texts[0], case.page, tmp_path / str(len(found)), "result.mmd")
        reported = ([*inputs], [*vision], {name: seam.sample.tolist() for name, seam in deep.seams.items()})
        counts = (cache.length, cache.layers, getattr(cache, "bytes_per_token", None), KvProbe(state).digest())
        found.append((reported, counts, texts, tensors))
    (*actual, tensors), (*others, expected) = found
    assert [*actual] == [*others]
    assert len(deep.seams) > 4
    for one, other in zip(tensors, expected, strict=True):
        assert one.dtype == other.dtype
        assert torch.equal(one, other)


def test_what_is_written_into_given_tensors_is_written_there(misdo: Misdo, staged: CheckedSubject) -> None:
    """A subject may hold on to what it was given: a suite overwrites pixels, and steps are not to look at them."""
    misdo("decode:peek")
    inputs = staged.inputs(CASE)
    state = staged.subject.prefill(inputs, None)  # not by way of the copies that a checked subject is given
    before = staged.step(state, 1)
    inputs["images_ori"].add_(1)
    after = staged.step(state, 1)
    again = staged.step(state, 1)
    pixels = inputs["images_ori"].sum()
    assert float(after.max() - before.max()) == float(again.max() - after.max()) == float(pixels)


def test_hooks_are_called_and_removed_and_one_that_raises_costs_its_call(
    isolated: Any, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, calls = CheckedSubject(isolated), list[str]()
    inputs = subject.inputs(case)
    module = isolated.module("model.sam_model")
    with module.register_forward_pre_hook(lambda *_: calls.append("before")):
        handle = module.register_forward_hook(lambda *_: calls.append("after"))
        subject.vision(inputs)
        assert calls[:2] == ["before", "after"]
        handle.remove()
        calls.clear()
        subject.vision(inputs)
        assert {*calls} == {"before"}
    calls.clear()

    def refuse(*_: Any) -> None:
        raise DsocrError("this cannot be compared")

    with module.register_forward_hook(refuse):
        with pytest.raises(SubjectFaultError, match=r"raised in vision \(DsocrError: this cannot be compared\)"):
            subject.vision(inputs)
        pid = isolated.pid
    monkeypatch.setattr(isolated, "_on_event", lambda event, _broken: calls.append(event))
    assert "vision_fusion" in subject.vision(inputs)
    assert (calls, isolated.pid) == ([], pid), "its process sends nothing that nobody waits for"


def test_states_that_nobody_has_are_forgotten(staged: CheckedSubject) -> None:
    gc.collect()  # those of other tests
    inputs = staged.inputs(CASE)
    states = [staged.prefill(inputs, None)[0] for _ in range(3)]
    process = staged.subject.process
    assert process.dropped == []
    del states[:2]
    gc.collect()
    assert len(process.dropped) == 2
    staged.step(states[0], 1)
    assert process.dropped == []


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
