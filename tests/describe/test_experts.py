"""Mistakes planted in experts of the embedded model: what differs is found, and nothing else is named."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.explain.mistake import Changes
from tests.describe.planted import Found, Planted, described, weights

KEPT = 10
"""Number of tokens of an expert that are kept."""


def exchanged_experts(layer: Any, changes: Changes) -> None:
    own = [*layer.mlp.experts]
    own[3], own[5] = own[5], own[3]
    changes.set(layer.mlp, "experts", nn.ModuleList(own))


def normalised_weights(layer: Any, changes: Changes) -> None:
    changes.set(layer.mlp.gate, "normalise", True)


def one_expert(layer: Any, changes: Changes) -> None:
    changes.set(layer.mlp.gate, "experts_per_token", 1)


def weights_by_number(layer: Any, changes: Changes) -> None:
    def routed(run: Any, x: Tensor) -> Any:
        chosen, weights = run(x)
        return chosen.sort(dim=-1).values, weights.sort(dim=-1, descending=True).values

    changes.around(layer.mlp.gate, routed)


def first_tokens(layer: Any, changes: Changes) -> None:
    """Drop the tokens of an expert after its tenth."""

    def routed(run: Any, x: Tensor) -> Any:
        chosen, weights = run(x)
        places = F.one_hot(chosen.flatten(), 64).cumsum(0).gather(1, chosen.flatten()[:, None]).view_as(chosen)
        return chosen, weights * (places <= KEPT)

    changes.around(layer.mlp.gate, routed)


def without_light(layer: Any, changes: Changes) -> None:
    """Leave out experts with a weight below a tenth of the token's largest."""

    def routed(run: Any, x: Tensor) -> Any:
        chosen, weights = run(x)
        return chosen, weights * (weights >= 0.1 * weights.amax(1, keepdim=True))

    changes.around(layer.mlp.gate, routed)


def without_last_row(layer: Any, changes: Changes) -> None:
    """Leave out the last token of one expert."""

    def routed(run: Any, x: Tensor) -> Any:
        chosen, weights = run(x)
        of = chosen == chosen.max()
        return chosen, weights * ~(of & (of.any(1, keepdim=True).cumsum(0) == of.any(1).sum()))

    changes.around(layer.mlp.gate, routed)


def shared_by_weights(layer: Any, changes: Changes) -> None:
    gate = layer.mlp.gate
    changes.around(layer.mlp.shared_experts, lambda run, x: run(x) * gate(x.flatten(0, -2))[1].sum(1)[:, None])


def weighed_at(outside: float, inside: float) -> Planted:
    """Return a mistake that multiplies outputs and inputs of experts by powers of their weights."""

    def plant(layer: Any, changes: Changes) -> None:
        def forward(x: Tensor) -> Tensor:
            tokens = x.flatten(0, -2)
            out = layer.mlp.shared_experts(tokens)
            chosen, weights = layer.mlp.gate(tokens)
            for of, weight in zip(chosen.T, weights.T[..., None], strict=True):
                out = out + weight**outside * layer.mlp.run_looped(weight**inside * tokens, of[:, None])
            made: Tensor = out.view_as(x)
            return made

        changes.forward(layer.mlp, forward)

    return plant


def cooled(layer: Any, changes: Changes) -> None:
    """Take other weights of the right experts."""
    changes.around(layer.mlp.gate, lambda run, x: (run(x)[0], run(x)[1] ** 0.7))


def routed_by(change: Callable[[Tensor], Tensor]) -> Planted:
    """Return a mistake that chooses experts by other scores than those that weight them."""

    def plant(layer: Any, changes: Changes) -> None:
        def routed(x: Tensor) -> tuple[Tensor, Tensor]:
            scores = F.linear(x.float(), layer.mlp.gate.weight.float()).softmax(-1)
            chosen = change(scores).topk(2).indices
            return chosen, scores.gather(1, chosen)

        changes.forward(layer.mlp.gate, routed)

    return plant


def two_of_four_groups(scores: Tensor) -> Tensor:
    parts = scores.unflatten(1, (4, 2))
    sums = parts.sum(-1)
    kept: Tensor = parts * (sums >= sums.topk(2).values[:, -1:])[..., None]
    return kept.flatten(1)


def without_best(scores: Tensor) -> Tensor:
    return scores.where(scores < scores.amax(1, keepdim=True), torch.zeros(()))


def without_second(scores: Tensor) -> Tensor:
    second = scores.topk(2).values[:, 1:]
    return scores.where(scores != second, torch.zeros(()))


def without_third(scores: Tensor) -> Tensor:
    return scores.where(torch.arange(scores.shape[1]) != 2, torch.zeros(()))


FOUND: Mapping[str, Found] = {
    "experts": Found("prefill/3", exchanged_experts, "experts", "experts 3 and 5 differ; their outputs are those of"),
    "an expert": Found(
        "prefill/3",
        weights("mlp.experts.2.down_proj.weight", torch.zeros_like),
        "experts",
        "routed to expert 2 differ; its output is left out",
    ),
    "an expert's factor": Found(
        "prefill/3",
        weights("mlp.experts.2.down_proj.weight", lambda w: 3 * w),
        "experts",
        "routed to expert 2 differ; its output is multiplied by 3",
    ),
    "pairs": Found("prefill/3", weights_by_number, "experts", "goes to its expert with the lowest number"),
    "capacity": Found("prefill/3", first_tokens, "experts", "of experts 0 to 4 and 7, after the first 10 tokens"),
    "light": Found(
        "prefill/3", without_light, "experts", "the last expert's weight over that of the token's first is below 0.1"
    ),
    "last row": Found("prefill/3", without_last_row, "experts", "is left out: that of expert 7, the last one of its"),
    "one expert": Found("prefill/3", one_expert, "experts", "each token has 1 expert instead of 2"),
    "shared by weights": Found(
        "prefill/3",
        shared_by_weights,
        "experts",
        "the shared experts' output is multiplied by the sum of the token's weights",
    ),
    "groups": Found(
        "prefill/3",
        routed_by(two_of_four_groups),
        "experts",
        "tokens have other experts: they are chosen inside the best 2 of 4 groups of 2 experts, by the two best scores",
    ),
    "ranks": Found("prefill/3", routed_by(without_best), "experts", "experts: they are those of the ranks 2 and 3"),
    "half of the shared": Found(
        "prefill/3",
        weights("mlp.shared_experts.down_proj.weight", lambda w: w * (torch.arange(w.shape[1]) < w.shape[1] // 2)),
        "experts",
        "inside the shared experts, channels 128 to 255 of 256 are left out",
    ),
    "never": Found(
        "prefill/3", routed_by(without_third), "experts", "tokens have other experts: expert 2 is never chosen"
    ),
    "odd ranks": Found(
        "prefill/3", routed_by(without_second), "experts", "other experts, of the ranks 1 and 3 by score"
    ),
    "weights": Found("prefill/3", normalised_weights, "experts", "divided by their sum"),
    "weights of inputs": Found(
        "prefill/3", weighed_at(0, 1), "experts", "weight multiplies its expert's input, not its out"
    ),
    "weights of gates": Found(
        "prefill/3", weighed_at(-1, 1), "experts", "weight multiplies its expert's gate inside of"
    ),
    "weights twice": Found("prefill/3", weighed_at(2, 0), "experts", "weight multiplies its expert's output twice"),
    "other weights": Found(
        "prefill/3", cooled, "experts", "experts are right, and their weights are others: they sum to"
    ),
    "shared": Found(
        "prefill/3",
        weights("mlp.shared_experts.down_proj.weight", lambda w: 2 * w),
        "experts",
        "the shared experts count twice, and the routed ones count once",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_differs_in_experts_is_found(name: str) -> None:
    FOUND[name].check()


@pytest.mark.parametrize("inside", [0.8, 1.5, 2])
def test_no_weights_are_named_that_the_output_only_resembles(inside: float) -> None:
    found = described("prefill/1", weighed_at(0, inside))
    assert "weights" not in found.text, found.text


def test_no_experts_are_named_that_the_output_only_resembles() -> None:
    def plant(layer: Any, changes: Changes) -> None:
        routed_by(without_third)(layer, changes)
        weighed_at(0, 1)(layer, changes)

    found = described("prefill/1", plant)
    assert "experts" not in found.text, found.text
