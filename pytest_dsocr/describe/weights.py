"""Describe other weights of a token's experts: given to others of its experts, left out, or of another size.

Shapes: T tokens, C channels, K experts of a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pytest_dsocr.describe.description import ENOUGH, Description
from pytest_dsocr.describe.pair import TINY, named

if TYPE_CHECKING:
    from pytest_dsocr.describe.experts import Mixed

CLOSE = 0.01
"""Largest difference of equal weights, relative to a token's largest."""


def of_weights(mixed: Mixed) -> Iterator[Description]:
    """Yield the relation of the weights that give the subject's output to the right ones.

    Weights are fitted on every second channel of the tokens that differ, and verified on the other channels.
    """
    tokens = mixed.pair.differing[0].nonzero().flatten()
    chosen, weights = (one.float().cpu() for one in mixed.routed)
    if not len(tokens) or 2 * chosen.shape[1] > mixed.before.shape[1]:
        return
    outs = mixed.experts.run_looped(mixed.tokens[tokens], mixed.routed[0][tokens]).float().cpu()
    outs_TCK = outs.unflatten(0, (len(tokens), -1)).mT
    base = (mixed.before + mixed.shared)[tokens].float().cpu()
    own = mixed.pair.actual[0][tokens] - base
    fitted = torch.linalg.lstsq(outs_TCK[:, ::2].double(), own[:, ::2, None].double()).solution[..., 0].float()
    left, before = (
        (own[:, 1::2] - (outs_TCK[:, 1::2] @ one[..., None])[..., 0]).norm() for one in (fitted, weights[tokens])
    )
    share = max(0.0, 1 - float(left / before.clamp_min(TINY)))
    if share >= ENOUGH:
        yield Description("experts", _words(fitted, weights, chosen.long(), tokens), share, len(tokens))


def _words(fitted: Tensor, weights: Tensor, chosen: Tensor, tokens: Tensor) -> str:
    right, of = weights[tokens], chosen[tokens]
    by_score = right.sort(1, descending=True).values
    by_number = torch.empty_like(right).scatter(1, of.argsort(1), by_score)
    if _equal(fitted, by_number):
        return (
            "the largest weight of a token goes to its expert with the lowest number, the next one to the next number"
        )
    if _equal(fitted.sort(1).values, right.sort(1).values):
        return "each token's experts and weights are right, but the weights go to others of its experts"
    if _equal(fitted.where(_is_zero(fitted, right), right), fitted):
        return _left_out(_is_zero(fitted, right), chosen, tokens)
    factors = fitted.sum(1) / right.sum(1)
    same = _equal(fitted, right * factors[:, None])
    low, high = (float(one) for one in factors.quantile(torch.tensor([0.05, 0.95])))
    size = f"they sum to {low:.3g} to {high:.3g} times the right sum"
    return f"each token's experts are right, and their weights are others: {size}{', each by one factor' * same}"


def _equal(own: Tensor, right: Tensor) -> bool:
    """Return whether nearly all tokens have the same weights."""
    near = ((own - right).abs().amax(1) <= CLOSE * right.abs().amax(1).clamp_min(TINY)).float()
    return float(near.mean()) >= ENOUGH


def _is_zero(own: Tensor, right: Tensor) -> Tensor:
    return own.abs() < CLOSE * right.amax(1, keepdim=True)


def _left_out(is_zero: Tensor, chosen: Tensor, tokens: Tensor) -> str:
    """Say which choices have no weight, and whether they are the later tokens of their experts."""
    dropped = torch.zeros_like(chosen, dtype=torch.bool)
    dropped[tokens] = is_zero
    experts = chosen[dropped].unique().tolist()
    count, of = int(dropped.sum()), named("expert", experts)
    text = f"{count:,} of {dropped.numel():,} choices of an expert are left out: those of {of}"
    kept = list[int]()
    for expert in experts:
        lost = (dropped & (chosen == expert)).any(1)[(chosen == expert).any(1)]
        kept.append(int(lost.nonzero()[0]))
        if float(lost[kept[-1] :].float().mean()) < ENOUGH:
            return text
    same = f"{kept[0]}" if len({*kept}) == 1 else f"{min(kept)} to {max(kept)}"
    return f"{text}, after the first {same} tokens of each"
