"""The engine's model of the sketch.

Shapes: B views, n places of a view and as many queries, C channels, N heads, D channels of a head.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.engine.model import Core, EngineModel
from pytest_dsocr.layers.norms import RmsNorm
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.layers.sam import Sam
from pytest_dsocr.models.architecture import Architecture

from .sizes import QueryEncoder, TowerConfig

QUERIES = {144: "query_768", 256: "query_1024"}
BASE, EPS = 1e6, 1e-6


def visible(count: int) -> Tensor:
    """Return who sees whom, ``[2n, 2n]``: places see places, queries see all places and earlier queries."""
    sees = torch.ones(2 * count, 2 * count, dtype=torch.bool).tril()
    sees[:count, :count] = True
    return sees


class Block(nn.Module):
    """Attention and a perceptron, each after a norm and added to what it was given."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.norm1, self.norm2 = RmsNorm(config.width, EPS), RmsNorm(config.width, EPS)
        self.qkv, self.proj = nn.Linear(config.width, 3 * config.width), nn.Linear(config.width, config.width)
        self.up, self.down = nn.Linear(config.width, 4 * config.width), nn.Linear(4 * config.width, config.width)

    def forward(self, x_BTC: Tensor, rope: Rope, sees: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x_BTC)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(rope.rotate(q), rope.rotate(k), v, attn_mask=sees)
        x_BTC = x_BTC + self.proj(mixed.transpose(1, 2).flatten(2))
        return x_BTC + self.down(F.silu(self.up(self.norm2(x_BTC))))


class Tower(nn.Module):
    """SAM's features ``[B, C, h, w]`` to a token for each query: ``[B, n, C]``."""

    def __init__(self, config: TowerConfig) -> None:
        super().__init__()
        self.head_dim = config.width // config.heads
        for count, name in QUERIES.items():
            self.add_module(name, nn.Embedding.from_pretrained(torch.empty(count, config.width)))
        self.layers = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = RmsNorm(config.width, EPS)

    def forward(self, features: Tensor) -> Tensor:
        places = features.flatten(2).transpose(1, 2)
        count, device = places.shape[1], features.device
        queries = self.get_parameter(f"{QUERIES[count]}.weight").expand(len(places), -1, -1)
        x_BTC = torch.cat([places, queries], 1)
        frequencies = BASE ** (-torch.arange(0, self.head_dim, 2, device=device) / self.head_dim)
        rope = Rope(frequencies, torch.arange(2 * count, device=device)[None], x_BTC.dtype)
        sees = visible(count).to(device)
        for block in self.layers:
            x_BTC = block(x_BTC, rope, sees)
        return self.norm(x_BTC)[:, count:]


class SketchCore(Core):
    """The decoder with the encoder's modules."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__(arch)
        sizes = arch.encoder
        assert isinstance(sizes, QueryEncoder)
        self.sam_model, self.qwen2_model = Sam(sizes.sam), Tower(sizes.tower)
        self.projector = nn.Linear(sizes.projector_input, arch.decoder.hidden_size)


class SketchOCR(EngineModel):
    """The whole model."""

    model: SketchCore

    def core(self, arch: Architecture) -> Core:
        """Return everything but the head that computes logits."""
        return SketchCore(arch)

    def sam(self, pixels: Tensor) -> Tensor:
        """Encode views ``[N, 3, S, S]``: ``[N, c, S/64, S/64]``."""
        return self.model.sam_model(pixels)

    def queries(self, sam: Tensor) -> Tensor:
        """Read SAM's features with the learned queries: ``[N, n, c]``."""
        return self.model.qwen2_model(sam)

    def projector(self, queries: Tensor) -> Tensor:
        """Project ``[N, n, c]`` to the decoder's width."""
        return self.model.projector(queries)
