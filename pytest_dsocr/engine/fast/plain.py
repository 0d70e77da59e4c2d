"""A decode step's operations in plain torch; none waits for the device, so a step can be captured.

They compute the same as the readable layers, with products joined. Attention also reads the room that a row has
not filled, with weights of 0. Shapes as in :mod:`~pytest_dsocr.engine.fast.weights`; B rows, S positions of
room.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine.fast.slots import StepPlace
from pytest_dsocr.engine.fast.weights import FeedForward, LayerWeights, Norm


def normalise(x_BC: Tensor, norm: Norm) -> Tensor:
    """Scale by the root of the mean square, computed in float32."""
    wide = x_BC.float()
    scaled = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + norm.eps)
    return norm.weight * scaled.to(x_BC.dtype)


def qkv(x_BC: Tensor, layer: LayerWeights, place: StepPlace) -> Tensor:
    """Write the new token's keys and values into the cache; return its queries ``[B, N * D]``."""
    heads = F.linear(normalise(x_BC, layer.before_attention), layer.qkv).unflatten(1, (-1, layer.head_dim))
    groups = place.keys.shape[1]
    turned, v = heads[:, :-groups], heads[:, -groups:]
    turned = rotate(turned, place.cos[place.positions, None], place.sin[place.positions, None])
    rows = torch.arange(len(x_BC), device=x_BC.device)
    place.keys[rows, :, place.targets] = turned[:, -groups:]
    place.values[rows, :, place.targets] = v
    return turned[:, :-groups].contiguous().flatten(1)


def attend(q_BH: Tensor, place: StepPlace, *, round_scores: bool) -> Tensor:
    """Attend from one token a row over its positions: ``[B, N * D]``."""
    rows, groups, room, channels = place.keys.shape
    q = q_BH.view(rows, groups, -1, channels)
    scores = q @ place.keys.transpose(2, 3) / math.sqrt(channels)
    scores = scores if round_scores else scores.float()
    ahead = torch.arange(room, device=q.device) > place.lasts[:, None]
    scores = scores.masked_fill(ahead[:, None, None], -torch.inf)
    return (scores.softmax(dim=-1, dtype=torch.float32).to(q.dtype) @ place.values).flatten(1)


def project(inputs_BH: Tensor, weight_CH: Tensor, residual_BC: Tensor) -> Tensor:
    """Multiply and add to the residual: ``[B, C]``."""
    return residual_BC + F.linear(inputs_BH, weight_CH)


def score(x_BC: Tensor, norm: Norm, weight_RC: Tensor, *, rounded: bool) -> Tensor:
    """Normalise and multiply: float32 ``[B, R]``, rounded to the weights' dtype before or computed in float32."""
    x = normalise(x_BC, norm)
    return F.linear(x, weight_RC).float() if rounded else F.linear(x.float(), weight_RC.float())


def gate_up(x_BC: Tensor, norm: Norm, scores_BE: Tensor | None, feed: FeedForward) -> tuple[Tensor, Tensor, Tensor]:
    """Normalise, choose experts, and run the first half of them and of the shared ones.

    Gives their inner channels ``[B, K * I + J]``, the experts ``[B, K]`` int64 and their weights ``[B, K]`` float32.
    """
    x = normalise(x_BC, norm)
    chosen, weights = route(scores_BE, feed, x)
    parts = [gated(F.linear(x, feed.shared_gate_up))]
    if feed.per_token:
        wide = feed.gate_up[chosen.flatten()]
        columns = x.repeat_interleave(feed.per_token, dim=0)[..., None]
        parts.insert(0, gated(torch.bmm(wide, columns)[..., 0]).view(len(x), -1))
    return torch.cat(parts, dim=1), chosen, weights


def down(inner: Tensor, chosen_BK: Tensor, weights_BK: Tensor, feed: FeedForward, residual_BC: Tensor) -> Tensor:
    """Run the second half of the experts, weigh and sum them in float32, add the shared ones and the residual."""
    routed, shared = inner.split([feed.per_token * feed.inner, feed.shared_inner], dim=1)
    out = F.linear(shared, feed.shared_down)
    if feed.per_token:
        columns = routed.reshape(-1, feed.inner, 1)
        each = torch.bmm(feed.down[chosen_BK.flatten()], columns).view(*chosen_BK.shape, -1)
        out = (each.float() * weights_BK[..., None]).sum(dim=1).to(out.dtype) + out
    return residual_BC + out


def route(scores_BE: Tensor | None, feed: FeedForward, x: Tensor, *, in_order: bool = True) -> tuple[Tensor, Tensor]:
    """Return each token's experts ``[B, K]`` int64, best first if requested, and their weights ``[B, K]`` float32."""
    if scores_BE is None:
        return x.new_empty(len(x), 0, dtype=torch.int64), x.new_empty(len(x), 0, dtype=torch.float32)
    weights, chosen = scores_BE.softmax(dim=-1).topk(feed.per_token, dim=-1, sorted=in_order)
    if feed.normalise:
        weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
    return chosen, weights * feed.scale


def gated(gate_up: Tensor) -> Tensor:
    """Take ``[..., 2I]``, the gate's channels first, to ``silu(gate) * up``."""
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate ``[..., D]``, the second half of the channels paired with the first."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
