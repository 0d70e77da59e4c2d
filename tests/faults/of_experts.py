"""Mistakes in the decoder's experts and perceptrons."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine.experts import MixtureOfExperts, Mlp, Router
from pytest_dsocr.subjects.session import SessionSubject
from tests.faults.of_sam import GARBAGE, LITTLE
from tests.faults.registry import core_of, fault, run_instead

A_SUM = "the sum over a token's experts does not depend on their order, but for rounding"


def _routed(patch: pytest.MonkeyPatch, change: Any) -> None:
    right = Router.forward
    patch.setattr(Router, "forward", lambda self, x: change(self, *right(self, x)))


@fault("MOE-01", "Experts' weights in another order than the experts", "prefill", GARBAGE, "each with its own")
def other_order(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The chosen are sorted, their weights are not."""
    _routed(patch, lambda self, chosen, weights: (chosen, weights.flip(-1)))


@fault("MOE-02", "Experts' weights made to sum to one", "prefill", LITTLE, "sum to one")
def renormalised(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """norm_topk_prob is True by default in many kernels."""
    _routed(patch, lambda self, chosen, weights: (chosen, weights / weights.sum(-1, keepdim=True)))


@fault("MOE-W1", "One expert fewer", "prefill", LITTLE, "6 of 64")
def one_fewer(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """num_experts_per_tok is off by one: the last weight is nought."""

    def drop(self: Router, chosen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        return chosen, weights.scatter(-1, weights.argmin(-1, keepdim=True), 0.0)

    _routed(patch, drop)


@fault("MOE-W2", "Scores by a sigmoid", "prefill", GARBAGE, "softmax")
def sigmoid(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The scoring of the next model of the family."""

    def forward(self: Router, x: Tensor) -> tuple[Tensor, Tensor]:
        weights, chosen = torch.topk(F.linear(x.float(), self.weight.float()).sigmoid(), self.experts_per_token)
        return chosen, weights

    patch.setattr(Router, "forward", forward)


@fault("MOE-W3", "The shared experts left out", "prefill", GARBAGE, "shared experts")
def no_shared(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """They are not among the experts that are looped over."""
    right = MixtureOfExperts.forward
    patch.setattr(MixtureOfExperts, "forward", lambda self, x: right(self, x) - self.shared_experts(x))


@fault("MOE-W4", "Weights scaled", "prefill", LITTLE, "experts.*weights")
def scaled(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The routed_scaling_factor of a larger model of the family, 2.5, in place of 1."""
    _routed(patch, lambda self, chosen, weights: (chosen, weights * 2.5))


@fault("MOE-W5", "Every expert the one beside it", "prefill", GARBAGE, "each with its own")
def next_expert(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Experts are counted from 1."""
    _routed(patch, lambda self, chosen, weights: ((chosen + 1) % len(self.weight), weights))


@fault("MOE-W6", "Scores in bfloat16", "prefill", LITTLE, "experts|round")
def rounded_scores(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The router is not computed in float32."""

    def forward(self: Router, x: Tensor) -> tuple[Tensor, Tensor]:
        scores = F.linear(x.bfloat16(), self.weight.bfloat16()).softmax(-1)
        weights, chosen = torch.topk(scores, self.experts_per_token)
        return chosen, weights.float()

    patch.setattr(Router, "forward", forward)


@fault("MOE-W7", "Experts of a limited capacity", "prefill", LITTLE, "experts", "a page of many tokens")
def capacity(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Behind the first hundred tokens of a call, an expert takes no more, as in training."""

    def limit(self: Router, chosen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        place = F.one_hot(chosen, len(self.weight)).sum(1).cumsum(0).gather(1, chosen)
        return chosen, weights * (place <= 100)

    _routed(patch, limit)


@fault("MOE-W8", "Gate and up exchanged", "prefill", GARBAGE, "gate|weights")
def exchanged_gate(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The two are fused in another order."""
    forward: Any = lambda self, x: self.down_proj(F.silu(self.up_proj(x)) * self.gate_proj(x))  # noqa: E731
    patch.setattr(Mlp, "forward", forward)


@fault("MOE-W9", "GELU in place of SiLU", "prefill", GARBAGE, "silu|activation")
def gelu(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The activation of another model."""
    patch.setattr(Mlp, "forward", lambda self, x: self.down_proj(F.gelu(self.gate_proj(x)) * self.up_proj(x)))


@fault("MOE-W10", "The last expert never chosen", "prefill", LITTLE, "6 of 64|experts", "a page that needs it")
def never_chosen(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The range of experts ends one early."""

    def skip(self: Router, chosen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        return chosen, weights.masked_fill(chosen == len(self.weight) - 1, 0.0)

    _routed(patch, skip)


@fault("MOE-W11", "The first layer's perceptron left out", "prefill", GARBAGE, "dense")
def no_dense_layer(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Layer 0 has no experts, and the loop over experts does nothing there."""
    mlp = core_of(subject).decoder_layers()[0].mlp
    run_instead(patch, mlp, torch.zeros_like)


@fault("MOE-W12", "Another token's experts beside a tie", "prefill", "nothing", "experts", equivalent=A_SUM)
def sorted_experts(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The chosen come sorted by their number."""

    def order(self: Router, chosen: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        ordered, at = chosen.sort(-1)
        return ordered, weights.gather(-1, at)

    _routed(patch, order)
