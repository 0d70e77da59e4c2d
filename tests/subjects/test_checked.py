"""What a subject does that is no answer: an error that names the method, the stage and what to give instead."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from pytest_dsocr.engine.session import Session
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.level import SubjectFaultError
from pytest_dsocr.observation.observation import Best, Observation, Step
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.follow import follow
from pytest_dsocr.subjects.protocol import METHODS
from pytest_dsocr.subjects.session import SessionSubject
from suites.contract.pages import write_page
from tests.compare.made import observation
from tests.subjects.seen import seen

Give = Callable[..., Any]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(write_page("tiny", tmp_path_factory.mktemp("pages")), "free", "tiny", 4)


@pytest.fixture(scope="module")
def expected(tiny: Session[Any], case: Case) -> Observation:
    return seen(tiny, case)


@pytest.fixture
def subject(tiny: Session[Any]) -> Any:
    session = SessionSubject(tiny)
    names = [name for level in METHODS.values() for name in level if name != "module"]
    return SimpleNamespace(**{name: getattr(session, name) for name in (*names, "text_of", "write", "seams")})


def fault_of(subject: Any, case: Case, expected: Observation) -> SubjectFaultError:
    """The error that ended what the subject said."""
    answer = follow(subject, case, expected)
    assert answer.fault is not None
    assert answer.lost
    with pytest.raises(SubjectFaultError) as caught:
        answer.whole()
    assert caught.value is answer.fault
    return answer.fault


def instead(change: Callable[[Any], Any]) -> Callable[[Give], Give]:
    """Change what a method gives."""
    return lambda method: lambda *given, **how: change(method(*given, **how))


def without(name: str) -> Callable[[Give], Give]:
    return instead(lambda tensors: {key: value for key, value in tensors.items() if key != name})


def with_(**changes: Any) -> Callable[[Give], Give]:
    return instead(lambda tensors: {**tensors, **changes})


def raising(error: Exception) -> Callable[[Give], Give]:
    def raise_it(*given: Any, **how: Any) -> Any:
        raise error

    return lambda method: raise_it


def state_with(logits: Any) -> Callable[[Give], Give]:
    return instead(lambda state: SimpleNamespace(logits=logits, cache=state.cache))


META = torch.ones(3, device="meta")
FAULTS = [
    ("inputs", raising(OSError("no disk"))),
    ("inputs", instead(tuple)),
    ("inputs", without("images_ori")),
    ("inputs", with_(input_ids=[1, 2])),
    ("inputs", with_(input_ids=torch.zeros(7, dtype=torch.int64))),
    ("inputs", with_(images_seq_mask=torch.zeros(2, 7, dtype=torch.bool))),
    ("inputs", with_(images_spatial_crop=torch.tensor([1, 1]))),
    ("inputs", with_(images_ori=META)),
    ("vision", raising(ValueError())),
    ("vision", instead(lambda _: None)),
    ("vision", with_(embeds=torch.ones(1))),
    ("vision", without("vision_fusion")),
    ("vision", with_(vision_fusion=META)),
    ("vision", with_(**{"sam.page": torch.ones(2, dtype=torch.complex64)})),
    ("vision", with_(**{"sam.page": torch.ones(2).to_sparse()})),
    ("vision", instead(lambda tensors: {7: torch.ones(1)})),
    ("vision", instead(lambda tensors: {"x" * 10**6: 3})),
    ("prefill", raising(RuntimeError("out of memory"))),
    ("prefill", instead(lambda _: None)),
    ("prefill", state_with([0.5])),
    ("prefill", state_with(torch.zeros(2, 512))),
    ("prefill", state_with(torch.tensor(0.5))),
    ("prefill", state_with(META)),
    ("step", raising(KeyError("past"))),
    ("step", instead(lambda _: None)),
    ("text_of", raising(TypeError("x"))),
    ("text_of", instead(list)),
    ("write", raising(PermissionError("locked"))),
    ("write", lambda _: lambda *given: None),
    ("read", raising(RuntimeError("gone"))),
    ("read", instead(str.encode)),
    ("read", instead(lambda _: None)),
]


def test_what_is_no_answer_names_method_and_stage(
    subject: Any, case: Case, expected: Observation, snapshot: SnapshotAssertion
) -> None:
    assert follow(subject, case, expected).text == expected.output.text
    found = []
    for method, change in FAULTS:
        more = {} if method == "read" else vars(subject)
        changed = SimpleNamespace(**{**more, method: change(getattr(subject, method))})
        fault = fault_of(changed, case, expected)
        found.append(f"{method}, {fault.stage}: {fault}")
    assert len({*found}) == len(FAULTS)
    assert "\n".join(found) == snapshot


@pytest.mark.parametrize("given", ["one text", ["one"], ["one", b"two"]])
def test_what_is_read_of_several_pages_is_a_text_of_each(given: Any, case: Case, snapshot: SnapshotAssertion) -> None:
    subject = CheckedSubject(SimpleNamespace(read=lambda page, **how: "", read_many=lambda pages, **how: given))
    with pytest.raises(SubjectFaultError) as caught:
        subject.read_many([case, case])
    assert caught.value.stage == "read"
    assert str(caught.value) == snapshot


def test_an_interrupt_is_no_fault(subject: Any, case: Case, expected: Observation) -> None:
    def interrupted(*given: Any, **how: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)

    subject.vision = interrupted
    with pytest.raises(KeyboardInterrupt):
        follow(subject, case, expected)


def test_a_vocabulary_smaller_than_the_references_is_told(subject: Any, case: Case) -> None:
    expected = observation(steps=(Step(5, Best((5, 128815), (2.0, 1.0))),))
    fault = fault_of(subject, case, expected)
    assert str(fault).startswith("the subject gave 512 logits, and the reference has token 128815; give those")


def test_infinite_logits_of_forbidden_tokens_are_an_answer(subject: Any, case: Case, expected: Observation) -> None:
    forbidden = min(set(range(512)) - {token for step in expected.steps for token in step.best.ids})
    step = subject.step

    def forbid(*given: Any) -> Any:
        logits = step(*given).clone()
        logits[forbidden] = -torch.inf
        return logits

    subject.step = forbid
    assert follow(subject, case, expected).forced is not None


def test_files_of_any_kind_are_looked_at(subject: Any, case: Case, expected: Observation) -> None:
    def write(text: str, page: Path, folder: Path) -> None:
        (folder / "result.mmd").write_text(text, encoding="utf-8")
        (folder / "images").mkdir()
        (folder / "images" / "0.jpg").write_bytes(b"no picture")

    subject.write = write
    assert str(fault_of(subject, case, expected)).startswith("the subject's write raised in postprocess")
