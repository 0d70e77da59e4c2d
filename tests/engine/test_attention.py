"""The attention functions against each other, in the shapes that prefill, steps and shared heads give."""

from __future__ import annotations

import sys

import pytest
import torch

from pytest_dsocr.engine.attention import attention_function, eager, sdpa
from pytest_dsocr.foundation.errors import DsocrError


def test_the_last_queries_see_what_they_see_among_all_in_either_way() -> None:
    torch.manual_seed(0)
    q, (k, v) = torch.randn(1, 4, 9, 8), torch.randn(2, 1, 2, 9, 8)
    whole = eager(q, k, v, None)
    for attend in (eager, sdpa):
        for queries in (9, 4, 1):
            found = attend(q[:, :, -queries:], k, v, None)
            torch.testing.assert_close(found, whole[:, :, -queries:], rtol=1e-5, atol=1e-6)


def test_absent_flash_attn_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(DsocrError, match=r"install pytest-dsocr\[gpu\] or choose eager or sdpa"):
        attention_function("flash_attention_2")
