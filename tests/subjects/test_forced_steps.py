"""What watching a step costs: no wait for the device, and as many bytes whatever the vocabulary."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine.pipeline import pick
from pytest_dsocr.observation.answer import NO_CHOICE
from pytest_dsocr.observation.columns import FIRST_ROOM
from pytest_dsocr.observation.level import SubjectFaultError
from pytest_dsocr.observation.observation import Best, NotFinite, Step
from pytest_dsocr.subjects.forced_steps import ForcedSteps

READS = ("item", "tolist", "cpu", "numpy", "to", "nonzero", "__bool__", "__int__", "__float__", "__index__")
"""What a number of a tensor's is read by on the host."""


class Calls(TorchFunctionMode):
    """Counts calls of torch's functions by name."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.names, self.count = names, Counter[str]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in self.names:
            self.count[name] += 1
        return func(*args, **(kwargs or {}))


class Reads(Calls):
    """Counts what the host would wait for where the tensors are a GPU's."""

    def __init__(self) -> None:
        super().__init__(*READS)


def logits_of(steps: int, vocabulary: int) -> Tensor:
    return torch.randn(steps, vocabulary, generator=torch.Generator().manual_seed(steps))


def theirs_along(logits_TV: Tensor) -> list[Step]:
    return [Step(best.ids[0], best) for best in map(Best.of, logits_TV)]


def seen(logits_TV: Tensor, theirs: Sequence[Step], prompt: Sequence[int] = (0,), ngram: int = 20) -> ForcedSteps:
    steps = ForcedSteps(theirs, ngram, prompt)
    for logits in logits_TV:
        steps.see(logits)
    return steps


@pytest.mark.parametrize("steps", [8, 64])
def test_no_step_is_waited_for(steps: int) -> None:
    logits, ngram = logits_of(steps, 600), 1  # every token that was said is forbidden from then on
    theirs = theirs_along(logits)
    with Reads() as while_seeing:
        watched = seen(logits, theirs, ngram=ngram)
    assert while_seeing.count.total() == 0
    with Reads() as while_fetching:
        assert len(watched.fetch()) == steps
    assert while_fetching.count.total() == 7


def test_the_counter_sees_a_read() -> None:
    with Reads() as reads:
        bool(torch.ones(()))
        Best.of(torch.randn(600))
    assert reads.count.total() == 3


def test_what_is_kept_does_not_grow_with_the_vocabulary() -> None:
    def kept_bytes(vocabulary: int) -> int:
        watched = seen(logits := logits_of(FIRST_ROOM, vocabulary), theirs_along(logits))
        storages = {part.untyped_storage().data_ptr(): part.untyped_storage() for part in watched.kept}
        return sum(storage.nbytes() for storage in storages.values())

    assert kept_bytes(600) == kept_bytes(129_280) <= FIRST_ROOM * 256


@pytest.mark.parametrize("steps", [1, FIRST_ROOM, FIRST_ROOM + 1, 4 * FIRST_ROOM + 3])
def test_every_step_is_fetched_in_its_order(steps: int) -> None:
    watched = seen(logits := logits_of(steps, 40), theirs_along(logits))
    assert [step.best for step in watched.fetch()] == [*map(Best.of, logits)]


def test_the_vocabulary_may_change_between_steps() -> None:
    steps = [*logits_of(3, 40), *logits_of(2, 48), *logits_of(1, 40)]
    theirs = [Step(3, Best((3, 7), (0.5, 0.4)))] * len(steps)
    watched = ForcedSteps(theirs, 20, (0,))
    for logits in steps:
        watched.see(logits)
    found = watched.fetch()
    assert [step.best for step in found] == [*map(Best.of, steps)]
    assert [step.at_reference for step in found] == [tuple(logits[[3, 7]].tolist()) for logits in steps]


@pytest.mark.parametrize("ngram", [0, 1, 2])
def test_a_choice_is_what_the_rule_leaves(ngram: int) -> None:
    logits = logits_of(40, 32)  # so few tokens that some are forbidden
    theirs, prompt = theirs_along(logits), [3, 5, 3, 7]
    ban, expected = NgramBan(ngram, prompt), []
    for row, step in zip(logits, theirs, strict=True):
        expected += pick(row[None], [ban.banned()])
        ban.push(step.token)
    found = seen(logits, theirs, prompt, ngram).fetch()
    assert [step.token for step in found] == expected
    assert [step.best for step in found] == [Best.of(row) for row in logits]
    own = [tuple(row[list(step.best.ids)].tolist()) for row, step in zip(logits, theirs, strict=True)]
    assert [step.at_reference for step in found] == own
    assert (expected == [step.token for step in theirs]) is (ngram == 0)


def test_a_reference_may_have_fewer_best_at_a_step() -> None:
    logits = logits_of(3, 32)
    theirs = [Step(1, Best((1,), (0.5,))), Step(2, Best((2, 4), (0.5, 0.4))), Step(3, Best((3,), (0.5,)))]
    assert [len(step.at_reference) for step in seen(logits, theirs).fetch()] == [1, 2, 1]


@pytest.mark.parametrize(
    ("bad", "counted"),
    [
        ({4: math.nan, 6: math.inf, 9: -math.nan}, NotFinite(2, 1, 32, (4,))),
        ({0: math.inf}, NotFinite(0, 1, 32, (0,))),
        ({31: -math.inf}, None),
        ({}, None),
    ],
)
def test_what_is_not_finite_is_counted_at_its_step(bad: dict[int, float], counted: NotFinite | None) -> None:
    logits = logits_of(3, 32)
    theirs = theirs_along(logits)
    for at, value in bad.items():
        logits[1, at] = value
    first, spoilt, last = seen(logits, theirs).fetch()
    assert spoilt.not_finite == counted
    assert (spoilt.token == NO_CHOICE) is (counted is not None)
    assert (first.not_finite, last.not_finite) == (None, None)
    assert NO_CHOICE not in (first.token, last.token)


def test_steps_up_to_one_that_is_too_short_are_kept() -> None:
    logits = logits_of(3, 32)
    theirs = theirs_along(logits)
    steps = seen(logits[:2], theirs)
    with pytest.raises(SubjectFaultError, match=r"the subject gave 1 logits, and the reference has token \d+"):
        steps.see(logits[2, :1])
    assert len(steps.fetch()) == 2


def test_nothing_seen_is_nothing() -> None:
    assert ForcedSteps((), 20, (0,)).fetch() == ()
