"""The Qwen2 tower: learned queries read SAM's features.

The n image tokens come first, row by row, then n queries, at positions 0 to 2n - 1. Each row of the mask attends to:

| row | image tokens | queries |
| --- | --- | --- |
| image token | all | none |
| query i | all | 0 to i |

The queries' outputs are a view's tokens. Nothing resizes a table of queries, so a view has 144 or 256 tokens.

Shapes: B views, n image tokens and as many queries, T = 2n, C channels, N query heads, G key-value heads, D channels of
a head.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.layers.attention import repeat_heads
from pytest_dsocr.layers.experts import GatedMlp
from pytest_dsocr.layers.norms import RmsNorm
from pytest_dsocr.layers.rotary import Rope, Rotary
from pytest_dsocr.models.deepseek_ocr2.sizes import QUERIES, TowerConfig


class Tower(nn.Module):
    """SAM's features ``[B, C, h, w]`` to a token for each query, ``[B, n, C]``; n is h * w."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.model = Decoder(config)
        for count, name in QUERIES.items():
            self.add_module(name, nn.Embedding.from_pretrained(torch.empty(count, config.dim)))

    def forward(self, sam_BCHW: Tensor) -> Tensor:
        image_BnC = sam_BCHW.flatten(2).transpose(1, 2)
        queries_BnC = self.queries(image_BnC.shape[1]).expand(len(image_BnC), -1, -1)
        out_BTC = self.model.model(torch.cat([image_BnC, queries_BnC], dim=1))
        return self.of_queries(out_BTC)

    def queries(self, count: int) -> Tensor:
        """Return the learned queries of a view of ``count`` image tokens, ``[count, C]``.

        Raises:
            DsocrError: if the model has none for such a view.
        """
        if count not in QUERIES:
            known = " or ".join(map(str, QUERIES))
            raise DsocrError(f"a view has {count} image tokens, and the model has queries for {known}; resize the view")
        return self.get_parameter(f"{QUERIES[count]}.weight")

    def of_queries(self, out_BTC: Tensor) -> Tensor:
        """Return the queries' half of the tower's output, ``[B, n, C]``."""
        return out_BTC[:, out_BTC.shape[1] // 2 :]


class Decoder(nn.Module):
    """The vendor's wrapper, which gives the layers their names in the checkpoint."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.model = Layers(config)


class Layers(Rotary):
    """The layers in order, and a norm after them; the model has no table of tokens."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = RmsNorm(config.dim, config.rms_norm_eps)

    def forward(self, x_BTC: Tensor) -> Tensor:
        rope, mask = self.block_arguments(x_BTC)
        for layer in self.layers:
            x_BTC = layer(x_BTC, rope, mask)
        return self.norm(x_BTC)

    def block_arguments(self, x_BTC: Tensor) -> tuple[Rope, Tensor]:
        """Return the rotation, and the mask ``[T, T]``: 0 where a row attends, otherwise the dtype's lowest value."""
        rope = Rope(self.inv_freq, positions(x_BTC.shape[1], x_BTC.device), x_BTC.dtype)
        hidden = ~visible(x_BTC.shape[1] // 2, x_BTC.device)
        mask = hidden.new_zeros(hidden.shape, dtype=x_BTC.dtype)
        return rope, mask.masked_fill_(hidden, torch.finfo(x_BTC.dtype).min)


def positions(count: int, device: torch.device) -> Tensor:
    """Return the positions ``[1, count]``, which do not restart at the queries."""
    return torch.arange(count, device=device)[None]


def visible(count: int, device: torch.device) -> Tensor:
    """Return the table of the module's docstring for ``count`` image tokens, ``[2 * count, 2 * count]`` bool."""
    sees = torch.ones(2 * count, 2 * count, dtype=torch.bool, device=device).tril()
    sees[:count, :count] = True
    return sees


class Layer(nn.Module):
    """Attention, then a gated perceptron, each after a norm and with a residual connection."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.input_layernorm = RmsNorm(config.dim, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RmsNorm(config.dim, config.rms_norm_eps)
        self.mlp = GatedMlp(config.dim, config.intermediate_size)

    def forward(self, x_BTC: Tensor, rope: Rope, mask: Tensor) -> Tensor:
        x_BTC = x_BTC + self.self_attn(self.input_layernorm(x_BTC), rope, mask)
        return x_BTC + self.mlp(self.post_attention_layernorm(x_BTC))


class Attention(nn.Module):
    """Attention with biases and rotary positions; query heads ``k * N / G`` and following share key-value head k."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        keys = config.key_value_heads * config.head_dim
        self.q_proj = nn.Linear(config.dim, config.dim)
        self.k_proj = nn.Linear(config.dim, keys)
        self.v_proj = nn.Linear(config.dim, keys)
        self.o_proj = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x_BTC: Tensor, rope: Rope, mask: Tensor) -> Tensor:
        q = rope.rotate(self.split_heads(self.q_proj(x_BTC)))
        k = rope.rotate(self.split_heads(self.k_proj(x_BTC)))
        v = self.split_heads(self.v_proj(x_BTC))
        out = F.scaled_dot_product_attention(q, repeat_heads(k, q), repeat_heads(v, q), attn_mask=mask)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def split_heads(self, x_BTC: Tensor) -> Tensor:
        """Split channels into heads: ``[B, N or G, T, D]``."""
        return x_BTC.unflatten(2, (-1, self.head_dim)).transpose(1, 2)
