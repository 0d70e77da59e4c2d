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

SEAMS = "the seams are sam.crops, sam.page, clip.crops, clip.page, projector.crops, projector.page, vision_fusion"
Give = Callable[..., Any]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return make_case(write_page("tiny", tmp_path_factory.mktemp("pages")), "free", "tiny", 4)


@pytest.fixture(scope="module")
def theirs(tiny: Session[Any], case: Case) -> Observation:
    return seen(tiny, case)


@pytest.fixture
def subject(tiny: Session[Any]) -> Any:
    session = SessionSubject(tiny)
    names = [name for level in METHODS.values() for name in level if name != "module"]
    return SimpleNamespace(**{name: getattr(session, name) for name in (*names, "text_of", "write", "seams")})


def fault_of(subject: Any, case: Case, theirs: Observation) -> SubjectFaultError:
    """The error that ended what the subject said."""
    answer = follow(subject, case, theirs)
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
    (
        "inputs",
        raising(OSError("no disk")),
        "tokenizer",
        "inputs raised in tokenizer (OSError: no disk); see the error",
    ),
    ("inputs", instead(tuple), "tokenizer", "inputs gave a tuple; give a mapping of names to tensors"),
    ("inputs", without("images_ori"), "tokenizer", "inputs lack images_ori; give these as well"),
    ("inputs", with_(input_ids=[1, 2]), "tokenizer", "inputs gave a list for input_ids; give a tensor"),
    (
        "inputs",
        with_(input_ids=torch.zeros(7, dtype=torch.int64)),
        "tokenizer",
        "inputs gave input_ids of shape [7]; give [1, S]",
    ),
    (
        "inputs",
        with_(images_seq_mask=torch.zeros(2, 7, dtype=torch.bool)),
        "tokenizer",
        "inputs gave images_seq_mask of shape [2, 7]; give [1, S]",
    ),
    (
        "inputs",
        with_(images_spatial_crop=torch.tensor([1, 1])),
        "tokenizer",
        "inputs gave images_spatial_crop of shape [2]; give [N, 2]",
    ),
    ("vision", raising(ValueError()), "vision", "vision raised in vision (ValueError); see the error"),
    ("vision", instead(lambda _: None), "vision", "vision gave None; give a mapping of names to tensors"),
    ("vision", with_(embeds=torch.ones(1)), "vision", f"vision gave embeds; {SEAMS}"),
    ("vision", without("vision_fusion"), "vision", "vision gave no vision_fusion; give what goes into prefill"),
    ("prefill", raising(RuntimeError("out of memory")), "prefill", "prefill raised in prefill (RuntimeError: out of"),
    (
        "prefill",
        instead(lambda _: None),
        "prefill",
        "prefill gave a state with None for logits; give a tensor [V]",
    ),
    ("prefill", state_with([0.5]), "prefill", "prefill gave a state with a list for logits; give a tensor [V]"),
    (
        "prefill",
        state_with(torch.zeros(2, 512)),
        "prefill",
        "prefill gave a state with logits of shape [2, 512]; give [V]",
    ),
    ("prefill", state_with(torch.tensor(0.5)), "prefill", "prefill gave a state with logits of shape []; give [V]"),
    ("inputs", with_(images_ori=META), "tokenizer", "inputs gave a meta tensor of torch.float32 for images_ori; give"),
    (
        "vision",
        with_(vision_fusion=META),
        "vision",
        "vision gave a meta tensor of torch.float32 for vision_fusion; give",
    ),
    (
        "vision",
        with_(**{"sam.page": torch.ones(2, dtype=torch.complex64)}),
        "vision",
        "vision gave a strided tensor of",
    ),
    ("vision", with_(**{"sam.page": torch.ones(2).to_sparse()}), "vision", "vision gave a sparse_coo tensor of torch"),
    ("vision", instead(lambda tensors: {7: torch.ones(1)}), "vision", "vision gave a int for a name; give a str"),
    (
        "prefill",
        state_with(META),
        "prefill",
        "prefill gave a state with a meta tensor of torch.float32 for logits; give",
    ),
    ("step", raising(KeyError("past")), "decode", "step raised in decode (KeyError: 'past'); see the error"),
    ("step", instead(lambda _: None), "decode", "step gave None for logits; give a tensor [V]"),
    ("text_of", raising(TypeError("x")), "postprocess", "text_of raised in postprocess (TypeError: x); see the error"),
    ("text_of", instead(list), "postprocess", "text_of gave a list; give the text, a str"),
    ("write", raising(PermissionError("locked")), "postprocess", "write raised in postprocess (PermissionError: loc"),
    ("write", lambda _: lambda *given: None, "postprocess", "write left no result.mmd in the folder; write it there"),
]


@pytest.mark.parametrize(("method", "change", "stage", "message"), FAULTS)
def test_what_is_no_answer_names_method_and_stage(
    method: str,
    change: Callable[[Give], Give],
    stage: str,
    message: str,
    subject: Any,
    case: Case,
    theirs: Observation,
) -> None:
    assert follow(subject, case, theirs).text == theirs.output.text
    setattr(subject, method, change(getattr(subject, method)))
    fault = fault_of(subject, case, theirs)
    assert fault.stage == stage
    assert str(fault).startswith(f"the subject's {message}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (raising(RuntimeError("gone")), "the subject's read raised in read (RuntimeError: gone)"),
        (instead(str.encode), "the subject's read gave a bytes; give the text, a str"),
        (instead(lambda _: None), "the subject's read gave None; give the text, a str"),
    ],
)
def test_what_is_read_is_a_text(
    change: Callable[[Give], Give], message: str, subject: Any, case: Case, theirs: Observation
) -> None:
    subject = SimpleNamespace(read=change(subject.read))
    fault = fault_of(subject, case, theirs)
    assert str(fault).startswith(message)
    assert fault.stage == "read"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("one text", "read_many gave a str; give a list of texts, one a page"),
        (["one"], "read_many gave 1 texts of 2 pages; give one a page"),
        (["one", b"two"], "read_many gave a bytes; give the text, a str"),
    ],
)
def test_what_is_read_of_several_pages_is_a_text_of_each(given: Any, message: str, case: Case) -> None:
    subject = CheckedSubject(SimpleNamespace(read=lambda page, **how: "", read_many=lambda pages, **how: given))
    with pytest.raises(SubjectFaultError, match=message) as caught:
        subject.read_many([case, case])
    assert caught.value.stage == "read"


def test_what_it_raised_is_chained_and_long_words_are_cut(subject: Any, case: Case, theirs: Observation) -> None:
    error = RuntimeError("a word " * 1000)
    subject.vision = raising(error)(subject.vision)
    fault = fault_of(subject, case, theirs)
    assert fault.__cause__ is error
    assert len(str(fault)) < 400


def test_an_interrupt_is_no_fault(subject: Any, case: Case, theirs: Observation) -> None:
    def interrupted(*given: Any, **how: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)

    subject.vision = interrupted
    with pytest.raises(KeyboardInterrupt):
        follow(subject, case, theirs)


def test_a_vocabulary_smaller_than_the_references_is_told(subject: Any, case: Case) -> None:
    theirs = observation(steps=(Step(5, Best((5, 128815), (2.0, 1.0))),))
    fault = fault_of(subject, case, theirs)
    assert str(fault).startswith("the subject gave 512 logits, and the reference has token 128815; give those")


def test_infinite_logits_of_forbidden_tokens_are_an_answer(subject: Any, case: Case, theirs: Observation) -> None:
    forbidden = min(set(range(512)) - {token for step in theirs.steps for token in step.best.ids})
    step = subject.step

    def forbid(*given: Any) -> Any:
        logits = step(*given).clone()
        logits[forbidden] = -torch.inf
        return logits

    subject.step = forbid
    assert follow(subject, case, theirs).forced is not None


def test_files_of_any_kind_are_looked_at(subject: Any, case: Case, theirs: Observation) -> None:
    def write(text: str, page: Path, folder: Path) -> None:
        (folder / "result.mmd").write_text(text, encoding="utf-8")
        (folder / "images").mkdir()
        (folder / "images" / "0.jpg").write_bytes(b"no picture")

    subject.write = write
    assert str(fault_of(subject, case, theirs)).startswith("the subject's write raised in postprocess")
