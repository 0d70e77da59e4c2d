"""The mixture of experts, computed without waiting for the device in a decode step.

Shapes: T tokens, C hidden channels, K experts of a token, E experts, I channels inside an expert.
"""

from collections.abc import Callable
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.layers.sizes import DecoderConfig


class GatedMlp(nn.Module):
    """A gated perceptron: ``down(silu(gate(x)) * up(x))``."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Router(nn.Module):
    """Chooses each token's experts: the highest softmax scores, used as they are (not made to sum to one)."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.n_routed_experts, config.hidden_size))
        self.experts_per_token = config.num_experts_per_tok
        self.normalise = config.norm_topk_prob and config.num_experts_per_tok > 1
        self.scale = config.routed_scaling_factor

    def forward(self, x_TC: Tensor) -> tuple[Tensor, Tensor]:
        """Return each token's experts ``[T, K]`` int64 and their weights ``[T, K]`` float32."""
        scores = F.linear(x_TC.float(), self.weight.float()).softmax(dim=-1, dtype=torch.float32)
        weights, chosen = torch.topk(scores, self.experts_per_token, dim=-1, sorted=False)
        if self.normalise:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + 1e-20)
        return chosen, weights * self.scale


class MixtureOfExperts(nn.Module):
    """Routed experts, weighted and summed in float32, and shared ones that see every token."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        inner = config.moe_intermediate_size
        self.gate = Router(config)
        self.experts = nn.ModuleList(GatedMlp(config.hidden_size, inner) for _ in range(config.n_routed_experts))
        self.shared_experts = GatedMlp(config.hidden_size, inner * config.n_shared_experts)
        self._stacked: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor) -> Tensor:
        tokens_TC = x.flatten(0, -2)
        chosen, weights = self.gate(tokens_TC)
        few = chosen.numel() <= len(self.experts)
        routed = self.run_gathered if self._stacked is not None and few else self.run_looped
        out_TKC = routed(tokens_TC, chosen).unflatten(0, chosen.shape)
        mixed = (out_TKC.to(weights.dtype) * weights[..., None]).sum(dim=1).to(out_TKC.dtype)
        return mixed.view_as(x) + self.shared_experts(x)

    def run_looped(self, tokens_TC: Tensor, chosen: Tensor) -> Tensor:
        """Run each expert once over its tokens; the choice goes to the host. Returns ``[T * K, C]``."""
        if len(tokens_TC) == 1:  # a decode step has nothing to sort, which would take a twentieth of its time
            return torch.cat([self.experts[expert](tokens_TC) for expert in chosen[0].tolist()])
        order = chosen.flatten().argsort()
        counts = torch.bincount(chosen.flatten(), minlength=len(self.experts)).tolist()
        parts = tokens_TC[order // chosen.shape[1]].split(counts)
        sorted_out = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True) if len(part)])
        out = torch.empty_like(sorted_out)
        out[order] = sorted_out
        return out

    def run_gathered(self, tokens_TC: Tensor, chosen: Tensor) -> Tensor:
        """Gather the chosen experts' weights and multiply once, the host not waiting. Returns ``[T * K, C]``."""
        assert self._stacked is not None
        gate_up, down = self._stacked
        flat = chosen.flatten()
        rows = tokens_TC.repeat_interleave(chosen.shape[1], dim=0)[..., None]
        gate, up = torch.bmm(gate_up[flat], rows).chunk(2, dim=1)
        return torch.bmm(down[flat], F.silu(gate) * up)[..., 0]

    def stack(self) -> tuple[Tensor, Tensor]:
        """Move the experts' weights into two tensors, ``[E, 2I, C]`` and ``[E, C, I]``, that they stay views of."""
        gate_up = torch.stack([torch.cat([e.gate_proj.weight, e.up_proj.weight]) for e in self._mlps()])
        down = torch.stack([e.down_proj.weight for e in self._mlps()])
        for expert, wide, narrow in zip(self._mlps(), gate_up, down, strict=True):
            expert.gate_proj.weight.data, expert.up_proj.weight.data = wide.chunk(2)
            expert.down_proj.weight.data = narrow
        self._stacked = (gate_up.detach(), down.detach())
        return self._stacked

    def _mlps(self) -> list[GatedMlp]:
        return [expert for expert in self.experts if isinstance(expert, GatedMlp)]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        self._stacked = None  # a move or a cast gives each expert a tensor of its own
        return super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
