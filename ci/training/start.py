"""The weights that training begins with: a trained checkpoint's where they fit, and a useful guess for the rest."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from pytest_dsocr.engine.model import EngineModel
from pytest_dsocr.models.deepseek_ocr2.qwen2 import Attention, Tower
from pytest_dsocr.models.deepseek_ocr2.sizes import QUERIES

LAST_OF_BRANCH = ("o_proj.weight", "down_proj.weight", "out_proj.weight", "fc2.weight", "lin2.weight")
BRANCH_SCALE, EMBEDDING_STD, HEAD_STD = 0.3, 0.3, 0.02
EMBEDDINGS = ("embed_tokens.weight", "image_newline", "view_seperator", "class_embedding", "position_embedding.weight")
PAIRS = 6
"""Pairs of rotary channels that find a place; slower ones tell neighbours apart no better."""
SHARPNESS, MARK = 8.0, 8.0
SAM_SIZE = 2.3
"""Root mean square of SAM's features in mini; a tower's last norm makes it 1."""


def begin(model: EngineModel, trained: Mapping[str, Tensor], seed: int) -> None:
    """Fill ``model`` from ``trained`` where name and shape are the same, and the rest with a guess."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in trained and trained[name].shape == parameter.shape:
                parameter.copy_(trained[name])
            else:
                parameter.copy_(_initial(name, parameter, random))
                wider = trained.get(name)
                if wider is not None and name.endswith("projector.layers.weight") and len(wider) == len(parameter):
                    parameter.copy_(SAM_SIZE * wider[:, -parameter.shape[1] :])  # SAM's features come last
        for module in model.modules():
            if isinstance(module, Tower):
                align_queries(module)


def _initial(name: str, parameter: nn.Parameter, random: torch.Generator) -> Tensor:
    if name.endswith("bias") or "rel_pos" in name:
        return torch.zeros_like(parameter)
    if name.endswith("weight") and parameter.dim() == 1:
        return torch.ones_like(parameter)
    normal = torch.randn(parameter.shape, generator=random)
    if name.endswith("sam_model.pos_embed"):
        return EMBEDDING_STD * plane_waves(*parameter.shape[2:])[None]
    if "query_" in name:
        return EMBEDDING_STD * plane_waves(math.isqrt(len(parameter)), parameter.shape[1]).flatten(0, 1)
    if name.endswith(EMBEDDINGS):
        return EMBEDDING_STD * normal
    if name.endswith(("lm_head.weight", "gate.weight")):
        return HEAD_STD * normal
    scale = BRANCH_SCALE if name.endswith(LAST_OF_BRANCH) else 1.0
    return scale * normal / math.sqrt(math.prod(parameter.shape[1:]))


def plane_waves(side: int, width: int) -> Tensor:
    """Return sines and cosines of every row and column of a square, alike for neighbours: ``[side, side, width]``."""
    periods = 4 * side * (1 / side) ** torch.linspace(0, 1, width // 4)
    angles = torch.arange(float(side))[:, None] * (2 * math.pi / periods)
    line = torch.cat([angles.sin(), angles.cos()], dim=1)
    return torch.cat([line[:, None].expand(-1, side, -1), line[None].expand(side, -1, -1)], dim=-1)


def align_queries(tower: Tower) -> None:
    """Let each query begin as a copy of the image token of its place.

    Query i stands n positions after image token i. Keys share a bias, and a query turns it back by n positions. A
    table's n is in a channel of its own, the mark, which the queries' projection reads. Each layer carries other
    channels, as many as it has for values.
    """
    frequencies = tower.model.model.inv_freq.float()
    for channel, count in enumerate(QUERIES):
        table = tower.queries(count)
        table[:, : len(QUERIES)] = 0
        table[:, channel] = MARK
    carried = 0
    for attention in (module for module in tower.modules() if isinstance(module, Attention)):
        q, k, v, o = attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj
        head, width = attention.head_dim, len(attention.o_proj.weight)
        group, pairs = len(q.weight) // len(k.weight), min(PAIRS, head // 2)
        for one in (q, k):
            one.weight *= 0.3
        for n in range(len(k.weight) // head):
            key, query = slice(n * head, (n + 1) * head), slice(n * group * head, (n * group + 1) * head)
            k.bias[key][:pairs] = SHARPNESS
            for channel, count in enumerate(QUERIES):
                turned = -count * frequencies[:pairs].cpu()
                gain = SHARPNESS / MARK
                q.weight[query][:pairs, channel] = gain * turned.cos()
                q.weight[query][head // 2 : head // 2 + pairs, channel] = gain * turned.sin()
            channels = torch.arange(carried, carried + head) % width
            v.weight[key] = 0
            v.weight[key][torch.arange(head), channels] = 1
            o.weight[:, query] = 0
            o.weight[:, query][channels, torch.arange(head)] = 1
            carried += head
