"""The attention functions against a plain float64 softmax, in every shape that prefill, steps and batches give."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from torch import Tensor

from pytest_dsocr.engine.attention import ATTENTION, attention_function
from pytest_dsocr.foundation.errors import DsocrError

CPU = ("eager", "sdpa")


def oracle(q: Tensor, k: Tensor, v: Tensor, lengths: list[int]) -> Tensor:
    """Query by query: the last query of a row sees all of the row's positions, each one before it one fewer."""
    q, k, v = q.double(), k.double(), v.double()
    out = torch.empty_like(q)
    group = q.shape[1] // k.shape[1]
    for row, length in enumerate(lengths):
        for head in range(q.shape[1]):
            for query in range(q.shape[2]):
                seen = length - (q.shape[2] - 1 - query)
                keys, values = k[row, head // group, :seen], v[row, head // group, :seen]
                weights = (keys @ q[row, head, query] / math.sqrt(q.shape[3])).softmax(dim=0)
                out[row, head, query] = weights @ values
    return out


@pytest.mark.parametrize("name", CPU)
@pytest.mark.parametrize(("queries", "keys", "kv_heads"), [(7, 7, 4), (1, 9, 2), (4, 9, 2)])
def test_equals_the_oracle(name: str, queries: int, keys: int, kv_heads: int) -> None:
    torch.manual_seed(0)
    q = torch.randn(1, 4, queries, 8)
    k, v = torch.randn(2, 1, kv_heads, keys, 8)
    torch.testing.assert_close(ATTENTION[name](q, k, v, None).double(), oracle(q, k, v, [keys]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", CPU)
def test_rows_of_different_lengths_see_only_their_own(name: str) -> None:
    torch.manual_seed(0)
    q = torch.randn(3, 4, 1, 8)
    k, v = torch.randn(2, 3, 4, 6, 8)
    lengths = [6, 2, 5]
    out = ATTENTION[name](q, k, v, lengths)
    torch.testing.assert_close(out.double(), oracle(q, k, v, lengths), rtol=1e-5, atol=1e-6)
    k[1, :, 2:] = torch.nan
    v[1, :, 2:] = 1e9
    assert torch.equal(ATTENTION[name](q, k.nan_to_num(7.0), v, lengths), out)


def test_absent_flash_attn_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(DsocrError, match=r"install pytest-dsocr\[gpu\] or choose eager or sdpa"):
        attention_function("flash_attention_2")
