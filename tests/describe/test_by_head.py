"""Attention with keys hidden, or with tensors or angles of single heads changed: the words say which."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from pytest_dsocr.describe.by_head import OwnHeads, other_angles, other_heads
from pytest_dsocr.describe.core import AttentionCore, attended
from pytest_dsocr.describe.keys import hidden_keys
from pytest_dsocr.layers.rotary import Rope
from tests.describe.real import random

HEADS, COUNT, SIZE = 4, 70, 8
FREQUENCIES = 1 / 100 ** (torch.arange(0, SIZE, 2) / SIZE)
CAUSAL = torch.zeros(COUNT, COUNT).masked_fill(torch.ones(COUNT, COUNT).triu(1).bool(), -1e30)[None]


def turn(x_NPD: Tensor, positions: Tensor) -> Tensor:
    return Rope(FREQUENCIES, positions[None], x_NPD.dtype).rotate(x_NPD[None])[0]


def attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, core: AttentionCore = attended) -> Tensor:
    return core(q[None], k[None], v[None], lambda _: None if bias is None else bias[None])[0]


def seen(change: Callable[..., Tensor], bias: Tensor | None = None) -> OwnHeads:
    """Return heads of which the output is changed."""
    q, k, v = random(3, HEADS, COUNT, SIZE)
    return OwnHeads.of(q, k, v, lambda: bias, change(q, k, v, bias), attend(q, k, v, bias))


@pytest.mark.parametrize(
    ("hidden", "bias", "words"),
    [
        (lambda q, k: k >= 64, None, "the last 6 of 70 keys are hidden: those behind the last multiple of 64"),
        (lambda q, k: k >= 51, None, "the last 19 of 70 keys are hidden"),
        (lambda q, k: k == 69, None, "the last of 70 keys is hidden"),
        (lambda q, k: k < 3, None, "the first 3 of 70 keys are hidden"),
        (lambda q, k: (k == q) & (q > 0), CAUSAL, "no position sees itself"),
        (lambda q, k: k < q - 8, CAUSAL, "each position sees only the 9 keys up to itself"),
    ],
)
def test_hidden_keys_are_counted(hidden: Callable[[Tensor, Tensor], Tensor], bias: Tensor | None, words: str) -> None:
    own = seen(partial(attend, core=partial(attended, hidden=hidden)), bias)
    found = dict(hidden_keys(own))
    assert words in found
    made = attend(own.q, own.k, own.v, bias, partial(attended, hidden=found[words]))
    assert torch.allclose(made[:, 1:], own.out[:, 1:], atol=1e-5)


def keys_of(sources: list[int], q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    return attend(q, k[sources], v, bias)


def bare_keys(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    bare = turn(k, -torch.arange(COUNT))
    return attend(q, torch.cat([k[:3], bare[3:]]), v, bias)


def late_queries(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    return attend(turn(q, torch.full((COUNT,), -13)), k, v, bias)


@pytest.mark.parametrize(
    ("change", "heads", "words"),
    [
        (partial(keys_of, [0, 1, 3, 2]), "heads 2 to 3 of 4", "the keys are those of heads 3 and 2"),
        (partial(keys_of, [0, 1, 1, 3]), "head 2 of 4", "the keys are those of head 1"),
        (bare_keys, "head 3 of 4", "the keys are not rotated"),
        (late_queries, "", "the queries are rotated for 13 positions earlier"),
    ],
)
def test_a_heads_own_mistake_is_told(change: Callable[..., Tensor], heads: str, words: str) -> None:
    own = seen(change, CAUSAL)
    assert own.words == heads
    found = {**dict(other_heads(own)), **dict(other_angles(own, turn))}
    right = [
        text
        for text, core in found.items()
        if torch.allclose(attend(own.q, own.k, own.v, CAUSAL, core)[own.wrong], own.out[own.wrong], atol=1e-3)
    ]
    assert right == [words]
