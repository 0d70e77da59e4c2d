"""Results of a subject have exact types, or raise an error that names method, stage and advice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
import torch
from syrupy.assertion import SnapshotAssertion
from torch import Tensor

from pytest_dsocr.base.exact_types import to_builtin
from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import SubjectFaultError
from pytest_dsocr.records.reference_result import ReferenceResult
from pytest_dsocr.subjects.checked import CheckedSubject, copied
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.follow import run_teacher_forced
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.protocol import METHODS

Give = Callable[..., Any]


@pytest.fixture
def subject(tiny: Engine[Any]) -> Any:
    engine = EngineSubject(tiny)
    names = [name for level in METHODS.values() for name in level if name != "module"]
    return SimpleNamespace(**{name: getattr(engine, name) for name in (*names, "text_of", "write", "seams")})


def fault_of(subject: Any, case: Case, expected: ReferenceResult) -> SubjectFaultError:
    """Return the error that ended the subject's answer."""
    answer = run_teacher_forced(subject, case, expected)
    assert answer.fault is not None
    assert answer.lost
    with pytest.raises(SubjectFaultError) as caught:
        answer.whole()
    assert caught.value is answer.fault
    return answer.fault


def instead(change: Callable[[Any], Any]) -> Callable[[Give], Give]:
    """Change what a method returns."""
    return lambda method: lambda *given, **how: change(method(*given, **how))


def without(name: str) -> Callable[[Give], Give]:
    return instead(lambda tensors: {key: value for key, value in tensors.items() if key != name})


def with_(**changes: Any) -> Callable[[Give], Give]:
    return instead(lambda tensors: {**tensors, **changes})


def raising(error: Exception) -> Callable[[Give], Give]:
    return lambda method: Mock(side_effect=error)


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
    subject: Any, case: Case, expected: ReferenceResult, snapshot: SnapshotAssertion
) -> None:
    assert run_teacher_forced(subject, case, expected).text == expected.output.text
    found = []
    for method, change in FAULTS:
        more = {} if method == "read" else vars(subject)
        changed = SimpleNamespace(**{**more, method: change(getattr(subject, method))})
        fault = fault_of(changed, case, expected)
        found.append(f"{method}, {fault.stage}: {fault}")
    damaged = {"write": lambda *given: (subject.write(*given), (given[2] / "x.jpg").write_bytes(b"none"))}
    fault = fault_of(SimpleNamespace(**(vars(subject) | damaged)), case, expected)
    assert str(fault).startswith("the subject's write raised in postprocess (UnidentifiedImageError")
    for texts in ("one text", ["one"], ["one", b"two"]):
        several: Any = SimpleNamespace(read=len, read_many=lambda pages, texts=texts, **how: texts)
        with pytest.raises(SubjectFaultError) as caught:
            CheckedSubject(several).read_many([case, case])
        found.append(f"read_many, {caught.value.stage}: {caught.value}")
    assert len({*found}) == len(FAULTS) + 3
    assert "\n".join(found) == snapshot


class AnyText(str):
    """Equals whatever it is compared with."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __str__(self) -> str:
        return self

    def strip(self, chars: str | None = None) -> AnyText:
        return self


class Lying(Tensor):
    """A tensor that claims what it is made to claim, whatever it holds."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("it was asked for what it overrides")

    def clone(self, *given: Any, **how: Any) -> Any:
        raise AssertionError

    detach = as_subclass = cpu = clone


def lying(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: one.as_subclass(Lying) for name, one in tensors.items()}


def verdicts(subject: Any, case: Case, expected: ReferenceResult) -> dict[str, Verdict]:
    answer = run_teacher_forced(subject, case, expected).whole()
    return {one.what: one.verdict for one in compare_observations(answer, expected, tolerances("float32"))}


def test_a_text_that_agrees_with_everything_is_compared_with_the_reference(
    case: Case, expected: ReferenceResult
) -> None:
    subject: Any = SimpleNamespace(read=lambda *given, **how: AnyText("nonsense"))
    answer = run_teacher_forced(subject, case, expected)
    assert (type(answer.text), answer.text) == (str, "nonsense")
    assert verdicts(subject, case, expected)["text"] is Verdict.WRONG
    padded: Any = SimpleNamespace(read=lambda *given, **how: f"\n {expected.output.text}\t\n\n")
    assert verdicts(padded, case, expected)["text"] is Verdict.MATCH


def test_tensors_of_other_classes_are_read_as_torchs_own(subject: Any, case: Case, expected: ReferenceResult) -> None:
    for name in ("inputs", "vision"):
        setattr(subject, name, instead(lying)(getattr(subject, name)))
    subject.step = instead(lambda logits: logits.as_subclass(Lying))(subject.step)
    assert set(verdicts(subject, case, expected).values()) <= {Verdict.MATCH, Verdict.NOT_COMPARED}
    layer = torch.ones(1, 2, 3, 4)
    cache = SimpleNamespace(layers=1, keys=lambda _: layer.as_subclass(Lying), values=lambda _: layer)
    probe = KvProbe(cast("Any", SimpleNamespace(cache=cache)))
    assert probe.lengths == ((3, 3),)
    assert probe.digest().changed(probe.digest()) == ()


def test_what_is_copied_keeps_its_order_in_memory_and_nothing_of_a_class_or_gradient() -> None:
    given = torch.nn.Parameter(torch.randn(3, 4, 5).transpose(0, 2))
    own = copied("vision", "vision gave", "sam.page", given)
    assert (own.stride(), type(own), own.requires_grad) == (given.stride(), Tensor, False)
    given.data.zero_()
    assert own.any()

    class Three(IntEnum):
        THREE = 3

    class Words(list[str]):
        def __iter__(self) -> Iterator[str]:
            return iter(["other"])

    made = to_builtin({AnyText("k"): (Words(["own"]), {Three.THREE}), "f": frozenset({b"x"}), "t": True})
    assert made == {"k": (["own"], {3}), "f": frozenset({b"x"}), "t": True}
    assert [type(one) for one in (*made, *made["k"][0], *made["k"][1])] == [str, str, str, str, int]
    numbers = {"eos_id": Three.THREE, "no_repeat_ngram_size": 0, "max_new_tokens": 9}
    policy: Any = SimpleNamespace(read=len, policy=SimpleNamespace(**numbers))
    asked = CheckedSubject(policy).policy
    assert asked is not None
    assert type(asked.eos_id) is int
