"""A mixture of experts for many tokens, sorted by expert, so each expert's weights are read once.

Replaces ``gate_up`` and ``down`` in :mod:`~pytest_dsocr.engine.fast.step` if the B tokens are those of a prompt.
Shapes as in :mod:`~pytest_dsocr.engine.fast.weights`.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine.fast.plain import gated, normalise, route
from pytest_dsocr.engine.fast.step import PLAIN
from pytest_dsocr.engine.fast.weights import DecoderWeights, FeedForward, Norm

ALIGNED_BYTES = 16
"""Number of bytes that a matrix row's size must be a multiple of for the grouped product."""


def gate_up(x_BC: Tensor, norm: Norm, scores_BE: Tensor | None, feed: FeedForward) -> tuple[Tensor, Tensor, Tensor]:
    """Compute ``plain.gate_up``, with the routed experts' inner channels in the order of :func:`by_expert`."""
    x = normalise(x_BC, norm)
    chosen, weights = route(scores_BE, feed, x, in_order=False)
    gate, up = feed.shared_gate_up.chunk(2)
    shared = F.silu(F.linear(x, gate)) * F.linear(x, up)
    if not feed.per_token:
        return shared, chosen, weights
    order, ends = by_expert(chosen, len(feed.gate_up))
    rows = x[order // feed.per_token]
    if has_grouped_product(feed.gate_up):
        routed = gated(times(rows, feed.gate_up, ends))
    else:  # products of the sizes of the readable layers', which are the same to the bit then
        gate, up = feed.gate_up.chunk(2, dim=1)
        routed = F.silu(times(rows, gate, ends)) * times(rows, up, ends)
    return torch.cat([routed.view(len(x), -1), shared], dim=1), chosen, weights


def down(inner: Tensor, chosen_BK: Tensor, weights_BK: Tensor, feed: FeedForward, residual_BC: Tensor) -> Tensor:
    """Compute ``plain.down`` from the output of :func:`gate_up`."""
    routed, shared = inner.split([feed.per_token * feed.inner, feed.shared_inner], dim=1)
    out = F.linear(shared, feed.shared_down)
    if feed.per_token:
        order, ends = by_expert(chosen_BK, len(feed.down))
        made = times(routed.reshape(-1, feed.inner), feed.down, ends)
        each = torch.empty_like(made).index_copy_(0, order, made).view(*chosen_BK.shape, -1)
        out = (each.float() * weights_BK[..., None]).sum(dim=1).to(out.dtype) + out
    return residual_BC + out


GROUPED = replace(PLAIN, gate_up=gate_up, down=down)


def waits_for_nothing(weights: DecoderWeights) -> bool:
    """Return whether :data:`GROUPED` can be captured: one product by all experts without their counts."""
    mixtures = [layer.feed for layer in weights.layers if layer.feed.per_token]
    return all(has_grouped_product(weight) for feed in mixtures for weight in (feed.gate_up, feed.down))


def by_expert(chosen_BK: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """Sort a call's ``B * K`` choices by expert: their order, and where each expert's end, ``[E]`` int32."""
    sorted_experts, order = chosen_BK.flatten().sort(stable=True)
    return order, torch.searchsorted(
        sorted_experts, torch.arange(experts, device=order.device), right=True, out_int32=True
    )


def times(rows_MC: Tensor, weights_ERC: Tensor, ends_E: Tensor) -> Tensor:
    """Multiply each expert's rows, which end at ``ends``, by its matrix: ``[M, R]``."""
    if has_grouped_product(weights_ERC):
        return torch._grouped_mm(rows_MC, weights_ERC.transpose(1, 2), offs=ends_E)
    ends = ends_E.tolist()
    parts = rows_MC.split([end - start for start, end in zip([0, *ends], ends, strict=False)])
    return torch.cat([F.linear(part, weight) for part, weight in zip(parts, weights_ERC, strict=True) if len(part)])


def has_grouped_product(weights_ERC: Tensor) -> bool:
    """Return whether the device has one kernel for all experts, for which the host need not know the counts."""
    aligned = all(size * weights_ERC.element_size() % ALIGNED_BYTES == 0 for size in weights_ERC.shape[1:])
    return (
        weights_ERC.is_cuda
        and weights_ERC.dtype == torch.bfloat16
        and aligned
        and hasattr(torch, "_grouped_mm")
        and torch.cuda.get_device_capability(weights_ERC.device) >= (9, 0)
    )
