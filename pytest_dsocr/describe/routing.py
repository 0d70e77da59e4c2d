"""Describe which experts tokens have instead of their own: read from their outputs, and put down to a rule.

Shapes: T tokens, C channels, K experts of a token, E experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pytest_dsocr.base.words import joined
from pytest_dsocr.describe.description import ENOUGH, Description
from pytest_dsocr.describe.pair import TINY, named, share, spread
from pytest_dsocr.describe.weights import is_rounding

if TYPE_CHECKING:
    from pytest_dsocr.describe.experts import Mixed

MOST_TOKENS = 128
"""Number of tokens of which all experts are run."""
LEAST_TOKENS = 4
SMALL = 0.01
"""Weight, relative to a token's largest, below which an expert has none; and difference of equal weights."""


def of_routing(mixed: Mixed) -> Iterator[Description]:
    """Yield the experts of the tokens that differ, with the rule that chooses them, if one does.

    Weights of all experts are fitted on every second channel of these tokens, and verified on the other channels.
    """
    tokens = mixed.pair.not_equal[0].nonzero().flatten()
    some = tokens[spread(len(tokens), MOST_TOKENS)]
    count = len(mixed.experts.experts)
    if len(tokens) < LEAST_TOKENS or 4 * count > mixed.before.shape[1]:
        return
    fitted, explained, is_exact = _fitted(mixed, some)
    scores = mixed.scores.float().cpu()
    chosen = torch.zeros_like(scores, dtype=torch.bool).scatter(1, mixed.routed[0].cpu(), value=True)
    others = ((fitted != 0) != chosen[some]).any(1).float()
    if min(explained, float(others.mean())) < ENOUGH:
        return
    text = f"{len(tokens):,} of {len(scores):,} tokens have other experts{_weighed(fitted, scores[some], mixed)}"
    for words, mask in _rules(scores, mixed.experts.gate.experts_per_token):
        if mask[some].eq(fitted != 0).all(1).float().mean() >= ENOUGH:
            yield Description("experts", f"{text}: {words}", share(mixed.pair, _made(mixed, mask)[None]), len(scores))
    if is_exact:
        yield Description("experts", f"{text}{_ranked(fitted, scores[some])}", explained, len(tokens))


def _fitted(mixed: Mixed, some: Tensor) -> tuple[Tensor, float, bool]:
    """Return the weights of all experts of some tokens ``[T, E]``, the share that they explain, and if it is all."""
    experts = range(len(mixed.experts.experts))
    outs_TCE = torch.stack([mixed.output_of(one, some).float().cpu() for one in experts], -1)
    own = mixed.pair.actual[0][some] - (mixed.before + mixed.shared)[some].float().cpu()
    even, odd = (outs_TCE[:, first::2] for first in (0, 1))
    fitted = torch.linalg.lstsq(even.double(), own[:, ::2, None].double()).solution[..., 0].float()
    fitted = fitted.where(fitted.abs() > SMALL * fitted.abs().amax(1, keepdim=True), torch.zeros(()))
    left = own[:, 1::2] - (odd @ fitted[..., None])[..., 0]
    before = mixed.pair.apart[0][some, 1::2]
    explained = max(0.0, 1 - float(left.norm() / before.norm().clamp_min(TINY)))
    return fitted, explained, is_rounding(left.norm(dim=1), mixed, some)


def _weighed(fitted: Tensor, scores: Tensor, mixed: Mixed) -> str:
    """Say how the weights follow from the scores of the experts."""
    right = scores * mixed.experts.gate.scale
    factors = fitted.sum(1) / right.where(fitted != 0, torch.zeros(())).sum(1).clamp_min(TINY)
    near = (fitted - factors[:, None] * right.where(fitted != 0, torch.zeros(()))).abs().amax(1) <= SMALL
    if near.float().mean() < ENOUGH:
        return ", with weights that are not their scores"
    if float((factors - 1).abs().quantile(ENOUGH)) <= SMALL or mixed.experts.gate.normalise:
        return ""
    if float((fitted.sum(1) - mixed.experts.gate.scale).abs().quantile(ENOUGH)) <= SMALL:
        return ", with weights that sum to one"
    return f", with {float(factors.median()):.3g} times their scores"


def _rules(scores_TE: Tensor, count: int) -> Iterator[tuple[str, Tensor]]:
    """Yield masks of the experts that another rule chooses, with words."""
    experts = scores_TE.shape[1]

    def best(scores: Tensor) -> Tensor:
        return torch.zeros_like(scores, dtype=torch.bool).scatter(1, scores.topk(count).indices, value=True)

    for groups in (one for one in range(2, experts // 2 + 1) if experts % one == 0):
        parts = scores_TE.unflatten(1, (groups, -1))
        for kept in range(1, groups):
            if kept * parts.shape[2] < count:
                continue
            for top, of in ((1, "best score"), (2, "two best scores")):
                value = parts.topk(min(top, parts.shape[2])).values.sum(-1)
                inside = torch.zeros_like(value).scatter(1, value.topk(kept).indices, 1.0)
                which = f"best {kept} of {groups} groups" if kept > 1 else f"best of {groups} groups"
                words = f"they are chosen inside the {which} of {parts.shape[2]} experts, by the {of} of a group"
                yield words, best((parts * inside[..., None]).flatten(1))
    order = scores_TE.argsort(1, descending=True)
    for first in range(1, experts - count + 1):
        mask = torch.zeros_like(scores_TE, dtype=torch.bool)
        ranks = joined([str(one + 1) for one in range(first, first + count)])
        yield f"they are those of the ranks {ranks}", mask.scatter(1, order[:, first : first + count], value=True)
    for expert in range(experts):
        without = scores_TE.clone()
        without[:, expert] = -1
        yield f"expert {expert} is never chosen", best(without)


def _made(mixed: Mixed, mask_TE: Tensor) -> Tensor:
    """Return the output with other experts of each token, weighted by their scores."""
    gate, device = mixed.experts.gate, mixed.tokens.device
    chosen = mask_TE.float().topk(gate.experts_per_token).indices.to(device)
    weights = mixed.scores.gather(1, chosen)
    weights = (weights / weights.sum(1, keepdim=True) if gate.normalise else weights) * gate.scale
    outs = mixed.experts.run_looped(mixed.tokens, chosen).float().unflatten(0, chosen.shape)
    out: Tensor = (mixed.before + mixed.shared).float() + (weights[..., None] * outs).sum(1)
    return out.cpu()


def _ranked(fitted: Tensor, scores: Tensor) -> str:
    """Say which ranks by score the experts of the tokens have, and which experts none of them has."""
    ranks = scores.argsort(1, descending=True).argsort(1)[fitted != 0].unique() + 1
    unused = (fitted == 0).all(0).nonzero().flatten().tolist()
    none = f"; none has {named('expert', unused)}" if unused else ""
    return f", of the {named('rank', ranks.tolist())} by score{none}"
