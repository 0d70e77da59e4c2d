"""Causal attention over a cache, in the three ways that users choose from.

Shapes: B rows, N query heads, G key-value heads, T queries, S keys, D channels of a head. The queries are the
last T of the S positions.
"""

import math
from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError


class AttentionFunction(Protocol):
    """``q`` ``[B, N, T, D]`` over ``k``, ``v`` ``[B, G, S, D]``, rows' own lengths if they differ: ``[B, N, T, D]``."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int] | None) -> Tensor:
        """Attend."""


def eager(q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int] | None) -> Tensor:
    """Every step written out, the softmax in float32, as the vendor's ``eager``."""
    k, v = repeat_heads(k, q), repeat_heads(v, q)
    scores = (q @ k.transpose(2, 3)).div_(math.sqrt(q.shape[-1]))  # in place, as they are the largest tensor of prefill
    visible = _visible(q, k, lengths)
    if visible is not None:
        scores.masked_fill_(~visible, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1, dtype=torch.float32).to(q.dtype) @ v


def sdpa(q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int] | None) -> Tensor:
    """PyTorch's fused attention."""
    k, v = repeat_heads(k, q), repeat_heads(v, q)
    if lengths is None and q.shape[2] == k.shape[2]:
        return F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=_visible(q, k, lengths))


def flash_attention_2(q: Tensor, k: Tensor, v: Tensor, lengths: Sequence[int] | None) -> Tensor:
    """Attend by the flash-attn package's kernel; rows of different lengths go one by one."""
    if lengths is not None:
        rows = [
            _flash(q[i : i + 1], k[i : i + 1, :, :length], v[i : i + 1, :, :length]) for i, length in enumerate(lengths)
        ]
        return torch.cat(rows)
    return _flash(q, k, v)


ATTENTION: dict[str, AttentionFunction] = {"eager": eager, "sdpa": sdpa, "flash_attention_2": flash_attention_2}


def attention_function(name: str) -> AttentionFunction:
    """Return the attention called ``name``; raise ``DsocrError`` if it is unknown or not installed."""
    if name not in ATTENTION:
        raise DsocrError(f"attention {name!r} is unknown; choose one of {', '.join(ATTENTION)}")
    if name == "flash_attention_2":
        _flash_attn_package()
    return ATTENTION[name]


LARGEST_ERROR = 5e-2
"""Relative error of a fused kernel in bf16 above which its build is broken; a right one has 5e-3."""


def check_flash_attention(head_dim: int, device: torch.device) -> None:
    """Compare flash-attn's kernel with eager attention in bf16, on the device where it will run.

    Some builds have a few widths of heads only. For the others they read memory behind each head's channels, without
    an error. With one head and few positions that memory may be empty, and the result right by chance.

    Raises:
        DsocrError: if the installed build does not attend over heads of ``head_dim`` channels.
    """
    source, shape = torch.Generator().manual_seed(0), (2, 4, 300, head_dim)
    q, k, v = (torch.randn(shape, generator=source).to(device, torch.bfloat16) for _ in range(3))
    errors = list[float]()
    for queries in (q, q[:, :, -1:]):
        expected, found = (attend(queries, k, v, None).float() for attend in (eager, flash_attention_2))
        errors.append(float((found - expected).norm() / expected.norm()))
    if not all(error < LARGEST_ERROR for error in errors):
        raise DsocrError(
            f"the installed flash-attn attends wrongly over heads of {head_dim} channels: relative error "
            f"{max(errors):.1e}; install a build with that width, or choose eager or sdpa"
        )


def _flash(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    attend = _flash_attn_package().flash_attn_func
    return attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), causal=True).transpose(1, 2)


def _flash_attn_package() -> Any:
    try:
        import flash_attn
    except ImportError as error:
        raise DsocrError(
            "attention 'flash_attention_2' needs the flash-attn package; "
            "install pytest-dsocr[gpu] or choose eager or sdpa"
        ) from error
    return flash_attn


def repeat_heads(keys: Tensor, q: Tensor) -> Tensor:
    """Repeat each key-value head ``[B, G, S, D]`` for the query heads that share it: ``[B, N, S, D]``."""
    repeats = q.shape[1] // keys.shape[1]
    return keys if repeats == 1 else keys.repeat_interleave(repeats, dim=1)


def _visible(q: Tensor, k: Tensor, lengths: Sequence[int] | None) -> Tensor | None:
    """Return the mask of the keys that each query may see, ``[B or 1, 1, T, S]``; None if it may see all."""
    queries, keys = q.shape[2], k.shape[2]
    if lengths is None and queries == 1:
        return None
    at = torch.arange(keys, device=q.device)
    if lengths is not None:
        return (at < torch.tensor(lengths, device=q.device)[:, None])[:, None, None]
    return (at <= at[keys - queries :, None])[None, None]
