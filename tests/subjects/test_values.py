"""What comes over the border comes in exact types: nothing that a subject's own classes override has a say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from pytest_dsocr.compare.observations import compare_observations
from pytest_dsocr.compare.tolerances import tolerances
from pytest_dsocr.compare.verdict import Verdict, as_expected, equal
from pytest_dsocr.engine.session import Session
from pytest_dsocr.foundation.exact import exact
from pytest_dsocr.observation.case import Case, make_case
from pytest_dsocr.observation.observation import Observation
from pytest_dsocr.subjects import values
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.follow import follow
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.session import SessionSubject
from tests.subjects.seen import seen


class AnyText(str):
    """Agrees with whatever it is held against."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0

    def __len__(self) -> int:
        return 458

    def __str__(self) -> str:
        return self

    def strip(self, chars: str | None = None) -> AnyText:
        return self

    def startswith(self, *given: Any) -> bool:
        return True


class AnyInt(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __int__(self) -> int:
        return 7

    __index__ = __int__


class Lying(Tensor):
    """A tensor that says what it was told to, whatever it holds."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("it was asked for what it overrides")

    def clone(self, *given: Any, **how: Any) -> Any:
        raise AssertionError

    detach = as_subclass = cpu = clone


class Changing(Mapping[str, Tensor]):
    """A mapping that gives other tensors each time it is looked into."""

    def __init__(self, of: Mapping[str, Tensor]) -> None:
        self.of, self.looks = of, 0

    def __getitem__(self, name: str) -> Tensor:
        self.looks += 1
        return self.of[name] if self.looks <= len(self.of) else torch.zeros(1)

    def __iter__(self) -> Iterator[str]:
        return iter(self.of)

    def __len__(self) -> int:
        return 10**6


@pytest.fixture(scope="module")
def case(pages: Path) -> Case:
    return make_case(pages / "tiny.png", "free", "tiny", 3)


@pytest.fixture(scope="module")
def expected(tiny: Session[Any], case: Case) -> Observation:
    return seen(tiny, case)


def verdicts(subject: Any, case: Case, expected: Observation) -> dict[str, Verdict]:
    answer = follow(subject, case, expected).whole()
    return {one.what: one.verdict for one in compare_observations(answer, expected, tolerances("float32"))}


@pytest.mark.parametrize("said", ["", "nonsense", "<|ref|>title<|/ref|>"])
def test_a_text_that_agrees_with_everything_is_held_against_the_reference(
    said: str, case: Case, expected: Observation
) -> None:
    subject: Any = SimpleNamespace(read=lambda *given, **how: AnyText(said))
    answer = follow(subject, case, expected)
    assert type(answer.text) is str
    assert answer.text == said
    assert verdicts(subject, case, expected)["text"] is Verdict.WRONG


def test_the_content_of_files_and_text_of_tokens_as_well(tiny: Session[Any], case: Case, expected: Observation) -> None:
    class Written(SessionSubject):
        def text_of(self, token_ids: Any) -> str:
            return AnyText("nonsense")

        def write(self, text: str, page: Path, folder: Path) -> None:
            assert type(text) is str
            super().write(text, page, folder)

    found = verdicts(Written(tiny), case, expected)
    assert (found["text"], found["result.mmd"]) == (Verdict.WRONG, Verdict.WRONG)


def test_white_space_around_what_is_read_is_not_compared(case: Case, expected: Observation) -> None:
    said = expected.output.text
    padded: Any = SimpleNamespace(read=lambda *given, **how: f"\n {said}\t\n\n")
    assert verdicts(padded, case, expected)["text"] is Verdict.MATCH
    inside: Any = SimpleNamespace(read=lambda *given, **how: said.replace(" ", "  ") + "x")
    assert verdicts(inside, case, expected)["text"] is Verdict.WRONG


def test_tensors_of_other_classes_are_read_as_torchs_own(tiny: Session[Any], case: Case, expected: Observation) -> None:
    class Own(SessionSubject):
        def inputs(self, *given: Any, **how: Any) -> Any:
            return Changing({name: one.as_subclass(Lying) for name, one in super().inputs(*given, **how).items()})

        def vision(self, inputs: Mapping[str, Tensor]) -> Any:
            assert {type(one) for one in inputs.values()} == {Tensor}
            return Changing({name: one.as_subclass(Lying) for name, one in super().vision(inputs).items()})

        def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
            assert type(vision_fusion) is Tensor
            return super().prefill(inputs, vision_fusion)

        def step(self, state: Any, token: int) -> Tensor:
            return super().step(state, token).as_subclass(Lying)

    assert set(verdicts(Own(tiny), case, expected).values()) == {Verdict.MATCH}


def test_a_copy_keeps_the_order_in_memory_and_nothing_of_the_gradient() -> None:
    given = torch.nn.Parameter(torch.randn(3, 4, 5).transpose(0, 2))
    own = values.tensor("vision", "vision gave", "sam.page", given)
    assert own.stride() == given.stride()
    assert (type(own), own.requires_grad) == (Tensor, False)
    given.data.zero_()
    assert own.any()


def test_numbers_are_exact_too(tiny: Session[Any], case: Case) -> None:
    for found in (AnyInt(3), [AnyInt(3)], (AnyText("a"), {"b": AnyInt(1)})):
        assert as_expected("cache/length", found, "other", "why").verdict is Verdict.WRONG
        assert equal("grid", found, (1, 2), "why").verdict is Verdict.WRONG
    assert as_expected("cache/length", AnyInt(3), 3, "why").verdict is Verdict.MATCH
    policy = SimpleNamespace(eos_id=AnyInt(5), no_repeat_ngram_size=AnyInt(2))
    own = CheckedSubject(SimpleNamespace(read=len, policy=policy)).policy
    assert own is not None
    assert (type(own.eos_id), own.eos_id, own.no_repeat_ngram_size) == (int, 5, 2)
    subject = SessionSubject(tiny)
    inputs = subject.inputs(case.page, prompt=case.prompt, preset=case.preset)
    cache: Any = subject.prefill(inputs, subject.vision(inputs)["vision_fusion"]).cache
    lying: Any = SimpleNamespace(
        cache=SimpleNamespace(
            layers=cache.layers,
            keys=lambda layer: cache.keys(layer).as_subclass(Lying),
            values=lambda layer: cache.values(layer).as_subclass(Lying),
        )
    )
    plain: Any = SimpleNamespace(cache=cache)
    assert KvProbe(lying).lengths == KvProbe(plain).lengths
    assert KvProbe(lying).digest() == KvProbe(plain).digest()


def test_exact_gives_builtin_types_all_the_way_down() -> None:
    class Colour(IntEnum):
        RED = 3

    class Pair(NamedTuple):
        a: object
        b: object

    class Words(list[str]):
        def __iter__(self) -> Iterator[str]:
            return iter(["other"])

    made = exact({AnyText("k"): Pair(Words(["own"]), {Colour.RED}), "f": frozenset({b"x"}), "t": True, "n": None})
    assert made == {"k": (["own"], {3}), "f": frozenset({b"x"}), "t": True, "n": None}
    assert [type(one) for one in (*made, *made["k"][0], *made["k"][1])] == [str, str, str, str, str, int]
    assert type(made["k"]) is tuple
    assert exact(made["t"]) is True
    kept = object()
    assert exact(kept) is kept
