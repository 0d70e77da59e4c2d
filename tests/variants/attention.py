"""Attention by other kernels."""

import math
from functools import partial

import torch
from torch import Tensor

from pytest_dsocr.layers.sam import SamAttention
from pytest_dsocr.models.deepseek_ocr.clip import ClipAttention
from pytest_dsocr.records.config import Setup
from tests.variants.changed import Variant, copied, with_forward


def sdpa_decoder(setup: Setup) -> Variant:
    """Attend by PyTorch's fused attention in the decoder."""
    return copied(setup, attention="sdpa")


def flash_decoder(setup: Setup) -> Variant:
    """Attend by flash-attn's kernel in the decoder."""
    return copied(setup, attention="flash_attention_2")


def eager_encoders(setup: Setup) -> Variant:
    """Write out the attention of SAM and CLIP, where the engine calls PyTorch's fused attention."""
    subject = with_forward(copied(setup), SamAttention, lambda module: partial(_sam, module))
    return with_forward(subject, ClipAttention, lambda module: partial(_clip, module))


def _sam(self: SamAttention, x_BHWC: Tensor) -> Tensor:
    batch, height, width, _ = x_BHWC.shape
    qkv = self.qkv(x_BHWC).view(batch, height * width, 3, self.heads, -1)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    out = _written_out(q, k, v, self.position_bias(q, height, width))
    return self.proj(out.transpose(1, 2).reshape(batch, height, width, -1))


def _clip(self: ClipAttention, x_BPC: Tensor) -> Tensor:
    q, k, v = self.qkv_proj(x_BPC).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
    return self.out_proj(_written_out(q, k, v, None).transpose(1, 2).flatten(2))


def _written_out(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Attend from ``q`` ``[B, N, P, D]``, the softmax in float32."""
    scores = (q @ k.transpose(2, 3)).float() / math.sqrt(q.shape[-1])
    weights = (scores if bias is None else scores + bias).softmax(dim=-1, dtype=torch.float32)
    return weights.to(v.dtype) @ v
