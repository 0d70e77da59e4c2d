"""Results of attention in steps show hidden keys and other sums."""

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


WAYS: Mapping[str, Callable[[StepAttention], Tensor]] = {
    "a step sees the first 4 keys and the last 30 keys of all": lambda x: seen(x, slice(4), slice(-30, None)),
    "a step sees only the last 40 keys of all": lambda x: seen(x, slice(-40, None)),
    "a step does not see the last key": lambda x: seen(x, slice(-1)),
    "keys 9 to 20 are not seen": lambda x: seen(x, slice(9), slice(21, None)),
    "taken in parts of 16": in_parts,
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
