"""The language model: Llama's attention, and a mixture of experts from the second layer on.

Shapes: B rows, T tokens of a call, C hidden channels, N heads, D channels of a head, K experts of a token,
E experts, I channels inside an expert.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.layers.attention import AttentionFunction, eager
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.experts import GatedMlp, MixtureOfExperts
from pytest_dsocr.layers.norms import RmsNorm
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.layers.sizes import DecoderConfig


class DecoderLayer(nn.Module):
    """Attention, then a perceptron or a mixture of experts, each after a norm and with a residual connection."""

    def __init__(self, config: DecoderConfig, index: int) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = DecoderAttention(config, index)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = (
            MixtureOfExperts(config) if config.is_moe(index) else GatedMlp(config.hidden_size, config.intermediate_size)
        )

    def forward(self, x_BTC: Tensor, rope: Rope, cache: KVCache) -> Tensor:
        x_BTC = x_BTC + self.self_attn(self.input_layernorm(x_BTC), rope, cache)
        return x_BTC + self.mlp(self.post_attention_layernorm(x_BTC))


class DecoderAttention(nn.Module):
    """Multi-head attention over the cache, with rotary positions in the half-rotation form."""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.attend: AttentionFunction = eager
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, queries, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, keys, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)

    def forward(self, x_BTC: Tensor, rope: Rope, cache: KVCache) -> Tensor:
        q = rope.rotate(self.split_heads(self.q_proj(x_BTC)))
        k = rope.rotate(self.split_heads(self.k_proj(x_BTC)))
        v = self.split_heads(self.v_proj(x_BTC))
        keys, values = cache.append(self.layer, k, v, rope.positions)
        lengths = cache.lengths_after(1) if cache.is_ragged else None
        out = self.attend(q, keys, values, lengths)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def split_heads(self, x_BTC: Tensor) -> Tensor:
        """Split channels into heads: ``[B, N, T, D]``."""
        return x_BTC.unflatten(2, (-1, self.head_dim)).transpose(1, 2)


class LmHead(nn.Linear):
    """Hidden states to logits, which are float32 whatever the weights' dtype."""

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight).float()
