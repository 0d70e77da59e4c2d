"""Results of attention in steps show hidden keys and other sums."""

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from pytest_dsocr.describe.attended import StepAttention, describe_attended
from tests.describe.real import random

QUERIES, KEYS, VALUES = 3 * random(12, 2, 8), random(2, 60, 8), random(2, 60, 8)


def steps(own: Callable[[StepAttention], Tensor]) -> list[StepAttention]:
    """Return twelve steps in which a subject attends in its own way."""
    seen = (slice(0, 49 + k) for k in range(12))
    right = [StepAttention(q, KEYS[:, of], VALUES[:, of], q) for q, of in zip(QUERIES, seen, strict=True)]
    return [one._replace(own=own(one)) for one in right]


def seen(step: StepAttention, *which: slice) -> Tensor:
    """Return attention to some keys alone."""
    at = sorted({k for one in which for k in range(step.keys.shape[1])[one]})
    return StepAttention(step.query, step.keys[:, at], step.values[:, at], step.query).right


def in_parts(step: StepAttention) -> Tensor:
    """Return attention over parts of 16 keys, each with its own maximum."""
    exps = [(one - one.amax(1, keepdim=True)).exp() for one in step.scores.split(16, 1)]
    parts = zip(exps, step.values.double().split(16, 1), strict=True)
    total = torch.cat(exps, 1).sum(1, keepdim=True)
    return torch.stack([(one[:, None] @ values)[:, 0] for one, values in parts]).sum(0) / total


def padded(step: StepAttention, number: int, score: float | None = 0.0) -> Tensor:
    """Return attention with keys of value 0 after its own; None for scores as large as the largest."""
    most = step.scores.amax(1, keepdim=True) if score is None else torch.full((2, 1), score)
    weights = torch.cat([step.scores, most.expand(2, number)], 1).softmax(1)
    return (weights[:, None, : step.keys.shape[1]] @ step.values.double())[:, 0]


def scaled(step: StepAttention, factor: float) -> Tensor:
    """Return attention with scores of another size."""
    return ((factor * step.scores).softmax(-1)[:, None] @ step.values.double())[:, 0]


def again(step: StepAttention, place: int, number: int) -> Tensor:
    """Return attention that counts a key some times more."""
    keys, values = (torch.cat([x, x[:, [place]].expand(-1, number, -1)], 1) for x in (step.keys, step.values))
    return StepAttention(step.query, keys, values, step.query).right


WAYS: Mapping[str, Callable[[StepAttention], Tensor]] = {
    "a step sees the first 4 keys and the last 30 keys of all": lambda x: seen(x, slice(4), slice(-30, None)),
    "a step sees only the last 40 keys of all": lambda x: seen(x, slice(-40, None)),
    "a step does not see the last key": lambda x: seen(x, slice(-1)),
    "keys 9 to 20 are not seen": lambda x: seen(x, slice(9), slice(21, None)),
    "taken in parts of 16": in_parts,
    "has 4 more terms of score 0 and value 0 at 60 keys: as many as there are up to a multiple of 16": (
        lambda x: padded(x, -x.keys.shape[1] % 16)
    ),
    "the softmax's sum has 7 more terms of score 0 and value 0": lambda x: padded(x, 7),
    "the softmax's sum has one more term of score 0 and value 0": lambda x: padded(x, 1),
    "40 more terms of score 0 and value 0 at 60 keys: as many as there are up to 100 keys": (
        lambda x: padded(x, 100 - x.keys.shape[1])
    ),
    "has 3 more terms as large as the largest, of value 0": lambda x: padded(x, 3, None),
    "has 4 more terms of the last key at 60 keys: as many as there are up to a multiple of 16": (
        lambda x: again(x, -1, -x.keys.shape[1] % 16)
    ),
    "has 2 more terms of the first key": lambda x: again(x, 0, 2),
    "the scores are multiplied by 0.693 (ln 2, as in a softmax of base 2)": lambda x: scaled(x, math.log(2)),
    "the scores are multiplied by 2.83 (the root of a head's 8 channels, as if": lambda x: scaled(x, 8**0.5),
    "the scores are multiplied by 0.9": lambda x: scaled(x, 0.9),
    "the probabilities are rounded to bfloat16": lambda x: (
        x.scores.softmax(-1).bfloat16().double()[:, None] @ x.values.double()
    )[:, 0],
}


@pytest.mark.parametrize("words", WAYS)
def test_another_attention_is_told_from_its_results(words: str) -> None:
    found = describe_attended(steps(WAYS[words]))
    assert found is not None
    assert words in found.text


def test_nothing_is_said_of_attention_that_no_keys_explain() -> None:
    assert describe_attended(steps(lambda x: x.right + 0.1 * x.query.double())) is None
    assert describe_attended([]) is None
    one, *others = steps(WAYS["a step sees only the last 40 keys of all"])
    assert describe_attended([one._replace(own=one.right + 1), *others]) is None, "the first step does so otherwise"


def test_no_factor_of_scores_is_said_that_changes_from_step_to_step() -> None:
    assert describe_attended(steps(lambda x: scaled(x, x.keys.shape[1] / 60 + 0.3))) is None


def test_no_number_of_keys_is_said_that_is_not_whole() -> None:
    def more(step: StepAttention) -> Tensor:
        exps = step.scores.exp()
        return ((exps / (exps.sum(1, keepdim=True) + 20.4))[:, None] @ step.values.double())[:, 0]

    assert describe_attended(steps(more)) is None
