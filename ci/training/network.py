"""The engine's own model made trainable: weights to begin with, batches through vision and decoder, experts in one go.

Shapes: B rows, P crops, V side of the whole view, T tokens, N image tokens, C hidden channels, E experts,
I channels inside an expert.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ci.training.batch import Asked, Batch
from ci.training.encoder import Encode
from ci.training.folded import FoldedAttention
from ci.training.lexicon import LABELS
from pytest_dsocr.contract.markup import UNITS
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.attention import sdpa
from pytest_dsocr.engine.decoder import Rope
from pytest_dsocr.engine.experts import MixtureOfExperts, Mlp
from pytest_dsocr.engine.fusion import end_rows, mosaic, square
from pytest_dsocr.engine.model import DeepseekOCR

EMBEDDING_STD = 0.3
HEAD_STD = 0.02
LONGEST_PERIOD = 4096
SHORTEST_PERIOD = 6


class Heads(nn.Module):
    """What training asks of vision tokens beside their word; thrown away afterwards."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.following = nn.Linear(width, width)
        """To the word that comes next."""
        self.layout = nn.Linear(width, 1 + len(LABELS) + 4 + 4)
        """To the label of the block in a cell, its box, and its sides near the cell."""
        nn.init.zeros_(self.layout.weight)


def new_model(arch: Architecture, number_ids: Tensor, seed: int) -> DeepseekOCR:
    """Give a model with weights to begin training from, float32 on the CPU.

    Args:
        arch: its dimensions.
        number_ids: the tokens of 0 to 999, ``[1000]``: numbers begin near their neighbours.
        seed: of the weights.
    """
    model = DeepseekOCR.empty(arch, sdpa, torch.device("cpu"), torch.float32, round_rope=False)
    for layer, block in enumerate(model.model.sam_model.blocks):
        block.attn = FoldedAttention(
            arch.sam, arch.sam.grid if layer in arch.sam.global_attn_indexes else arch.sam.window_size
        )
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(_initial(name, parameter, arch, random))
        waves = number_waves(arch.decoder.hidden_size)
        model.model.embed_tokens.weight[number_ids] += EMBEDDING_STD * waves
        model.lm_head.weight[number_ids] += HEAD_STD * waves
    return model


def _initial(name: str, parameter: Tensor, arch: Architecture, random: torch.Generator) -> Tensor:
    if name.endswith("bias") or "rel_pos" in name:
        return torch.zeros_like(parameter)
    if name.endswith("weight") and parameter.dim() == 1:
        return torch.ones_like(parameter)
    normal = torch.randn(parameter.shape, generator=random)
    if name.endswith("sam_model.pos_embed"):
        return EMBEDDING_STD * plane_waves(arch.sam.grid, arch.sam.width)[None]
    if name.endswith("lm_head.weight") or name.endswith("gate.weight"):
        return HEAD_STD * normal
    if name.endswith(("embed_tokens.weight", "image_newline", "view_seperator", "embedding", "embedding.weight")):
        return EMBEDDING_STD * normal
    fan_in = math.prod(parameter.shape[1:])
    last_of_branch = name.endswith(
        ("o_proj.weight", "down_proj.weight", "out_proj.weight", "fc2.weight", "lin2.weight")
    )
    return normal / math.sqrt(fan_in) * (0.3 if last_of_branch else 1.0)


def number_waves(width: int) -> Tensor:
    """Give sines and cosines of 0 to 999 at ``width / 2`` periods: ``[1000, width]``."""
    return _waves(torch.arange(UNITS + 1.0), width, LONGEST_PERIOD, SHORTEST_PERIOD)


def plane_waves(side: int, width: int) -> Tensor:
    """Give sines and cosines of every column and row of a square: ``[side, side, width]``."""
    line = _waves(torch.arange(float(side)), width // 2, 4 * side, 4)
    rows, columns = line[:, None].expand(-1, side, -1), line[None].expand(side, -1, -1)
    return torch.cat([rows, columns], dim=-1)


def _waves(values: Tensor, width: int, longest: float, shortest: float) -> Tensor:
    periods = longest * (shortest / longest) ** torch.linspace(0, 1, width // 2)
    angles = values[:, None] * (2 * math.pi / periods)
    return torch.cat([angles.sin(), angles.cos()], dim=1)


class Seen(NamedTuple):
    """What one pass gives."""

    vision: Tensor
    """The image tokens as the decoder gets them, ``[B, N, C]``."""
    hidden: Tensor
    """After the decoder's norm, ``[B, T, C]``."""
    imbalance: Tensor
    """1 where all experts are used alike, E where one is used for everything; mean over layers."""


def forward(model: DeepseekOCR, encode: Encode, batch: Batch) -> Seen:
    """Run a batch that lies on the model's device; ``encode`` is what :mod:`~ci.training.encoder` gives."""
    return speak(model, see(model, encode, batch), batch.asked)


def speak(model: DeepseekOCR, vision: Tensor, asked: Asked) -> Seen:
    """Run the decoder over image tokens ``[B, N, C]`` and what is asked of them."""
    embeds = model.embed(asked.ids)
    embeds = torch.cat([embeds[:, :1], vision, embeds[:, 1 + asked.image_tokens :]], dim=1)
    hidden, imbalance = decode(model, embeds)
    return Seen(vision, hidden, imbalance)


def see(model: DeepseekOCR, encode: Encode, batch: Batch) -> Tensor:
    """Encode every view and arrange the tokens: ``[B, N, C]``."""
    rows = len(batch.pages)
    page = encode(batch.pages)
    parts = [end_rows(square(page), model.image_newline)]
    if batch.crops.shape[1]:
        crops = encode(batch.crops.flatten(0, 1)).unflatten(0, (rows, -1))
        parts.insert(0, end_rows(mosaic(crops, batch.grid), model.image_newline))
    separators = model.view_seperator * ~batch.asked.blind[:, None]
    return torch.cat([*parts, separators[:, None]], dim=1)


class _NoCache:
    """Stands where attention keeps what it saw: a pass of training sees every token at once."""

    is_ragged = False

    def append(self, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        return keys, values


def decode(model: DeepseekOCR, x_BTC: Tensor) -> tuple[Tensor, Tensor]:
    """Run the decoder on whole rows: hidden states ``[B, T, C]``, and how unevenly experts are used."""
    core = model.model
    positions = torch.arange(x_BTC.shape[1], device=x_BTC.device).expand(len(x_BTC), -1)
    rope = Rope(core.inv_freq, positions, x_BTC.dtype)
    imbalances = []
    for layer in core.decoder_layers():
        x_BTC = x_BTC + layer.self_attn(layer.input_layernorm(x_BTC), rope, _NoCache())
        normal = layer.post_attention_layernorm(x_BTC)
        if isinstance(layer.mlp, MixtureOfExperts):
            mixed, imbalance = mix(layer.mlp, normal)
            imbalances.append(imbalance)
        else:
            mixed = layer.mlp(normal)
        x_BTC = x_BTC + mixed
    return core.norm(x_BTC), torch.stack(imbalances).mean()


def mix(moe: MixtureOfExperts, x_BTC: Tensor) -> tuple[Tensor, Tensor]:
    """Run all experts on all tokens and weight them by the router: the same result as the few that it chose.

    Also gives the routers' imbalance, whose gradient spreads the tokens over the experts.
    """
    tokens_TC = x_BTC.flatten(0, 1)
    chosen, weights = moe.gate(tokens_TC)
    experts = [expert for expert in moe.experts if isinstance(expert, Mlp)]
    weights_TE = torch.zeros(len(tokens_TC), len(experts), device=weights.device).scatter(1, chosen, weights)
    gates = F.linear(tokens_TC, torch.cat([expert.gate_proj.weight for expert in experts]))
    ups = F.linear(tokens_TC, torch.cat([expert.up_proj.weight for expert in experts]))
    inner_TEI = (F.silu(gates) * ups).unflatten(1, (len(experts), -1)) * weights_TE[..., None].to(gates.dtype)
    routed = F.linear(inner_TEI.flatten(1), torch.cat([expert.down_proj.weight for expert in experts], dim=1))
    return routed.view_as(x_BTC) + moe.shared_experts(x_BTC), _imbalance(moe, tokens_TC, chosen)


def _imbalance(moe: MixtureOfExperts, tokens_TC: Tensor, chosen: Tensor) -> Tensor:
    scores = F.linear(tokens_TC.float(), moe.gate.weight.float()).softmax(dim=-1).mean(dim=0)
    used = torch.bincount(chosen.flatten(), minlength=len(scores)) / chosen.numel()
    return len(scores) * (scores * used).sum()
