"""A subject in a process of its own offers and answers what it does here, to the bit."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.explain.parts import parts_of
from pytest_dsocr.records.block_seams import watch_deep
from pytest_dsocr.records.case import Case
from pytest_dsocr.records.config import Level, SubjectFaultError
from pytest_dsocr.subjects.checked import CheckedSubject
from pytest_dsocr.subjects.isolation.subject import IsolatedSubject
from pytest_dsocr.subjects.kv_probe import KvProbe
from pytest_dsocr.subjects.loading import close_subject, load_subject, open_subject
from pytest_dsocr.subjects.protocol import Setup, level_of
from tests.crops import cropped_case
from tests.hardening.misdeeds import Staged
from tests.subjects.conftest import CASE, LIMIT_S, Misdo

TINY = Setup("synthetic:tiny")


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
