"""Watching a step never waits for the device, copies the same bytes for any vocabulary, and finds what it should."""

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
from pytest_dsocr.records.columns import FIRST_ROOM
from pytest_dsocr.records.config import SubjectFaultError
from pytest_dsocr.records.reference_result import Best, NotFinite, Step
from pytest_dsocr.records.subject_result import NO_CHOICE
from pytest_dsocr.subjects.forced_steps import ForcedSteps

READS = ("item", "tolist", "cpu", "numpy", "to", "nonzero", "__bool__", "__int__", "__float__", "__index__")
"""Operations that read a tensor's values on the host."""


class Reads(TorchFunctionMode):
    """Counts what the host would wait for where the tensors are a GPU's."""

    def __init__(self) -> None:
        super().__init__()
        self.count = Counter[str]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (name := getattr(func, "__name__", "")) in READS:
            self.count[name] += 1
        return func(*args, **(kwargs or {}))


def logits_of(steps: int, vocabulary: int) -> Tensor:
    return torch.randn(steps, vocabulary, generator=torch.Generator().manual_seed(steps))


def expected_along(logits_TV: Tensor) -> list[Step]:
    return [Step(best.ids[0], best) for best in map(Best.of, logits_TV)]


def seen(
    logits_TV: Sequence[Tensor] | Tensor, expected: Sequence[Step], prompt: Sequence[int] = (0,), ngram: int = 20
) -> ForcedSteps:
    steps = ForcedSteps(expected, NgramBan(ngram, prompt))
    for logits in logits_TV:
        steps.see(logits)
    return steps


def test_no_step_is_waited_for_and_few_reads_fetch_them_all() -> None:
    reads = {}
    for steps in (8, 64):
        logits, ngram = logits_of(steps, 600), 1  # every token that was said is forbidden from then on
        expected = expected_along(logits)
        with Reads() as while_seeing:
            watched = seen(logits, expected, ngram=ngram)
        assert while_seeing.count.total() == 0
        with Reads() as while_fetching:
            assert len(watched.fetch()) == steps
        reads[steps] = while_fetching.count.total()
    assert reads[8] == reads[64] > 0


def test_what_is_kept_does_not_grow_with_the_vocabulary() -> None:
    def kept_bytes(vocabulary: int) -> int:
        watched = seen(logits := logits_of(FIRST_ROOM, vocabulary), expected_along(logits))
        storages = {part.untyped_storage().data_ptr(): part.untyped_storage() for part in watched.kept}
        return sum(storage.nbytes() for storage in storages.values())

    assert kept_bytes(600) == kept_bytes(129_280) <= FIRST_ROOM * 256


@pytest.mark.parametrize("steps", [0, 1, FIRST_ROOM, 4 * FIRST_ROOM + 3])
@pytest.mark.parametrize("ngram", [0, 1, 2])
def test_every_step_is_fetched_in_its_order_with_the_choice_that_the_rule_leaves(steps: int, ngram: int) -> None:
    logits = logits_of(steps, 32)  # so few tokens that some are forbidden
    expected, prompt = expected_along(logits), [3, 5, 3, 7]
    ban, choices = NgramBan(ngram, prompt), []
    for row, step in zip(logits, expected, strict=True):
        choices += pick(row[None], [ban.banned()])
        ban.push(step.token)
    found = seen(logits, expected, prompt, ngram).fetch()
    assert [step.token for step in found] == choices
    assert [step.best for step in found] == [Best.of(row) for row in logits]
    own = [tuple(row[list(step.best.ids)].tolist()) for row, step in zip(logits, expected, strict=True)]
    assert [step.at_reference for step in found] == own
    if steps > FIRST_ROOM:
        assert (choices == [step.token for step in expected]) is (ngram == 0)


def test_the_vocabulary_and_the_references_best_may_change_between_steps() -> None:
    steps = [*logits_of(3, 40), *logits_of(2, 48), *logits_of(1, 40)]
    both, one = Step(3, Best((3, 7), (0.5, 0.4))), Step(1, Best((1,), (0.5,)))
    expected = [one, both, both, one, both, one]
    found = seen(steps, expected).fetch()
    assert [step.best for step in found] == [*map(Best.of, steps)]
    wanted = [tuple(row[[*step.best.ids]].tolist()) for row, step in zip(steps, expected, strict=True)]
    assert [step.at_reference for step in found] == wanted


@pytest.mark.parametrize(
    ("bad", "counted"),
    [
        ({4: math.nan, 6: math.inf, 9: -math.nan}, NotFinite(2, 1, 32, (4,))),
        ({0: math.inf}, NotFinite(0, 1, 32, (0,))),
        ({31: -math.inf}, None),
    ],
)
def test_what_is_not_finite_is_counted_at_its_step(bad: dict[int, float], counted: NotFinite | None) -> None:
    logits = logits_of(3, 32)
    expected = expected_along(logits)
    for at, value in bad.items():
        logits[1, at] = value
    steps = seen(logits, expected).fetch()
    assert [step.not_finite for step in steps] == [None, counted, None]
    assert [step.token == NO_CHOICE for step in steps] == [False, counted is not None, False]


def test_steps_up_to_one_that_is_too_short_are_kept() -> None:
    logits = logits_of(3, 32)
    steps = seen(logits[:2], expected_along(logits))
    with pytest.raises(SubjectFaultError, match=r"the subject gave 1 logits, and the reference has token \d+"):
        steps.see(logits[2, :1])
    assert len(steps.fetch()) == 2
