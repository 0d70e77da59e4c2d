"""The ways to attend against eager attention; flash-attn on a CPU is a replacement of the same layout."""

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.layers.attention import AttentionFunction, attention_function, check_flash_attention, eager, sdpa

HEAD = 128  # of the decoder, and all that some builds of flash-attn have


def flash_attn_func(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False
) -> Tensor:
    """Attend as flash-attn documents it: ``[batch, length, heads, channels]``, the mask aligned to the lower right."""
    assert dropout_p == 0.0
    queries, keys, shared = q.shape[1], k.shape[1], q.shape[2] // k.shape[2]
    k, v = (one.repeat_interleave(shared, dim=2) for one in (k, v))
    scores = torch.einsum("bthd,bshd->bhts", q, k) * (softmax_scale or q.shape[-1] ** -0.5)
    if causal:
        scores = scores.masked_fill(torch.ones(queries, keys).tril(keys - queries) == 0, -torch.inf)
    return torch.einsum("bhts,bshd->bthd", scores.softmax(dim=-1), v)


class Kernel(NamedTuple):
    """A way to attend, where it runs, and how far it may be from attention in float32."""

    attend: AttentionFunction
    device: str
    dtype: torch.dtype
    relative_error: float


@pytest.fixture(params=["sdpa", "stand-in", "flash-attn"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    if request.param == "flash-attn":
        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA GPU")
        pytest.importorskip("flash_attn")
        yield Kernel(attention_function("flash_attention_2"), "cuda", torch.bfloat16, 1e-2)
        return
    if request.param == "sdpa":
        yield Kernel(sdpa, "cpu", torch.float32, 1e-5)
        return
    module = ModuleType("flash_attn")
    vars(module)["flash_attn_func"] = flash_attn_func
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    yield Kernel(attention_function("flash_attention_2"), "cpu", torch.float32, 1e-5)


@pytest.mark.parametrize("groups", [1, 2, 4], ids="{} heads of keys".format)
@pytest.mark.parametrize("queries", [9, 4, 1], ids=["prefill", "several tokens", "one token"])
def test_the_last_queries_see_what_they_see_in_eager_attention(queries: int, groups: int, kernel: Kernel) -> None:
    q, k, v = _random(9, 4, groups, groups)
    _compare(kernel, q[:, :, -queries:], k, v, None)


def test_rows_of_other_lengths_see_their_own_keys_alone(kernel: Kernel) -> None:
    q, k, v = _random(9, 4, 4, 4)
    _compare(kernel, q[:, :, -1:], k, v, [5, 9])


def test_absent_flash_attn_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(DsocrError, match=r"install pytest-dsocr\[gpu\] or choose eager or sdpa"):
        attention_function("flash_attention_2")


def test_a_build_without_this_width_of_heads_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_wide(q: Tensor, k: Tensor, v: Tensor, **options: bool) -> Tensor:
        """Attend rightly over heads of one width, and over others where only a few positions are asked for."""
        right = q.shape[-1] == HEAD or q[:, :, :, 0].numel() < 128
        return flash_attn_func(q, k, v, **options) if right else torch.zeros_like(q)

    module = ModuleType("flash_attn")
    vars(module)["flash_attn_func"] = only_wide
    monkeypatch.setitem(sys.modules, "flash_attn", module)
    check_flash_attention(HEAD, torch.device("cpu"))
    with pytest.raises(DsocrError, match="heads of 64 channels"):
        check_flash_attention(64, torch.device("cpu"))


def _random(length: int, *heads: int) -> list[Tensor]:
    """Tensors of two rows, whose values are the same in each dtype."""
    source = torch.Generator().manual_seed(0)
    return [torch.randn((2, one, length, HEAD), generator=source).bfloat16() for one in heads]


def _compare(kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, lengths: list[int] | None) -> None:
    expected = eager(q.float(), k.float(), v.float(), lengths)
    q, k, v = (one.to(kernel.device, kernel.dtype) for one in (q, k, v))
    found = kernel.attend(q, k, v, lengths)
    assert (found.shape, found.dtype) == (expected.shape, kernel.dtype)
    assert float((found.float().cpu() - expected).norm() / expected.norm()) < kernel.relative_error
