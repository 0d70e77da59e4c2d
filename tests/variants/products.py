"""Matrix products joined, sorted or padded in other ways."""

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine.fast.grouped import by_expert, times
from pytest_dsocr.engine.fast.plain import gated
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.decoder import DecoderAttention
from pytest_dsocr.layers.experts import GatedMlp, MixtureOfExperts
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.records.config import Setup
from tests.variants.changed import Forward, Variant, copied, modules_of, with_forward


def fused_qkv(setup: Setup) -> Variant:
    """Compute queries, keys and values of the decoder by one product."""

    def made(own: DecoderAttention) -> Forward:
        parts = own.q_proj.weight, own.k_proj.weight, own.v_proj.weight
        weight, widths = torch.cat(parts), [len(part) for part in parts]

        def forward(x_BTC: Tensor, rope: Rope, cache: KVCache) -> Tensor:
            q, k, v = map(own.split_heads, F.linear(x_BTC, weight).split(widths, dim=-1))
            keys, values = cache.append(own.layer, rope.rotate(k), v, rope.positions)
            lengths = cache.lengths_after(1) if cache.is_ragged else None
            return own.o_proj(own.attend(rope.rotate(q), keys, values, lengths).transpose(1, 2).flatten(2))

        return forward

    return with_forward(copied(setup), DecoderAttention, made)


def fused_gate_up(setup: Setup) -> Variant:
    """Compute both halves of every gated perceptron by one product."""
    subject = copied(setup)
    for module in modules_of(subject):
        if isinstance(module, MixtureOfExperts):
            module._stacked = None  # frees a second copy of the experts, which the joined weights replace

    def made(own: GatedMlp) -> Forward:
        weight = torch.cat([own.gate_proj.weight, own.up_proj.weight])
        own.gate_proj.weight.data, own.up_proj.weight.data = weight.chunk(2)
        return lambda x: own.down_proj(gated(F.linear(x, weight)))

    return with_forward(subject, GatedMlp, made)


def grouped_experts(setup: Setup) -> Variant:
    """Sort the tokens by expert, multiply once for each expert, and add up the results in place, in float32."""

    def made(own: MixtureOfExperts) -> Forward:
        gate_up, down = own.stack()

        def forward(x: Tensor) -> Tensor:
            tokens_TC = x.flatten(0, -2)
            chosen_TK, weights_TK = own.gate(tokens_TC)
            order, ends = by_expert(chosen_TK, len(down))
            of_token = order // chosen_TK.shape[1]
            out = times(gated(times(tokens_TC[of_token], gate_up, ends)), down, ends)
            mixed = torch.zeros(tokens_TC.shape, device=x.device)
            mixed.index_add_(0, of_token, out.float() * weights_TK.flatten()[order, None])
            return mixed.to(x.dtype).view_as(x) + own.shared_experts(x)

        return forward

    return with_forward(copied(setup), MixtureOfExperts, made)


def padded_experts(setup: Setup) -> Variant:
    """Give every expert the same number of rows, zeros among them, and multiply all experts at once."""

    def made(own: MixtureOfExperts) -> Forward:
        gate_up, down = own.stack()

        def forward(x: Tensor) -> Tensor:
            tokens_TC = x.flatten(0, -2)
            chosen_TK, weights_TK = own.gate(tokens_TC)
            order, ends = by_expert(chosen_TK, len(down))
            experts, counts = chosen_TK.flatten()[order], ends.diff(prepend=ends.new_zeros(1))
            row = torch.arange(len(order), device=x.device) - (ends - counts)[experts]
            rows = x.new_zeros(len(down), int(counts.max()), x.shape[-1])
            rows[experts, row] = tokens_TC[order // chosen_TK.shape[1]]
            out = torch.bmm(gated(torch.bmm(rows, gate_up.transpose(1, 2))), down.transpose(1, 2))
            each = out.new_empty(len(order), x.shape[-1])
            each[order] = out[experts, row]
            mixed = (each.view(*chosen_TK.shape, -1).float() * weights_TK[..., None]).sum(dim=1)
            return mixed.to(x.dtype).view_as(x) + own.shared_experts(x)

        return forward

    return with_forward(copied(setup), MixtureOfExperts, made)
