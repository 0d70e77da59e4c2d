"""Describe other weights of a token's experts: in another place, given to others of its experts, or left out.

Shapes: T tokens, C channels, K experts of a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.base.words import are
from pytest_dsocr.describe.description import ENOUGH, Description
from pytest_dsocr.describe.pair import EXACT, TINY, named, share, times
from pytest_dsocr.describe.threshold import parted_by

if TYPE_CHECKING:
    from pytest_dsocr.describe.experts import Mixed

CLOSE = 0.01
"""Largest difference of equal weights, relative to a token's largest."""
SEEN = 10
"""Factor of rounding from which on a choice that is left out is seen for sure."""
PLACES = {
    "each weight multiplies its expert's input, not its output": (0, 1),
    "each weight multiplies both its expert's input and its output": (1, 1),
    "each weight multiplies its expert's gate inside of the activation, not its output": (-1, 1),
    "each weight multiplies its expert's output twice": (2, 0),
    "the experts' outputs are added without their weights": (0, 0),
}
"""Powers of a weight that multiply an expert's output and its input; without its gate, an expert is linear."""


def of_places(mixed: Mixed) -> Iterator[Description]:
    """Yield other places of right weights: at the input of experts, or a number of times at their output."""
    chosen, weights = mixed.routed
    base = (mixed.before + mixed.shared).float().cpu()
    for words, (outside, inside) in PLACES.items():
        given = mixed.tokens[:, None] * weights[..., None].to(mixed.tokens.dtype) ** inside
        outs = mixed.experts.run_looped(given.flatten(0, 1), chosen.flatten()[:, None]).float()
        made = (outs.unflatten(0, chosen.shape) * weights[..., None].float() ** outside).sum(1).cpu()
        explained = share(mixed.pair, (base + made)[None])
        if explained >= EXACT:  # one place resembles another
            text = f"each token's experts and weights are right, but {words}"
            yield Description("experts", text, explained, len(base))


def of_weights(mixed: Mixed) -> Iterator[Description]:
    """Yield the relation of the weights that give the subject's output to the right ones.

    Weights are fitted on every second channel of the tokens that differ, and verified on the other channels. If no
    order or lack of the right weights explains them, they must give the output up to rounding. Nearly any change of
    the experts looks like other weights in part.
    """
    tokens = mixed.pair.not_equal[0].nonzero().flatten()
    weights, order = mixed.routed[1].sort(1, descending=True)
    routed = mixed.routed[0].gather(1, order)
    chosen, weights = routed.cpu(), weights.float().cpu()
    if not len(tokens) or 2 * chosen.shape[1] > mixed.before.shape[1]:
        return
    every_TKC = mixed.experts.run_looped(mixed.tokens, routed).float().cpu().unflatten(0, chosen.shape)
    outs_TCK = every_TKC[tokens].mT
    base = (mixed.before + mixed.shared)[tokens].float().cpu()
    own = mixed.pair.actual[0][tokens] - base
    fitted = torch.linalg.lstsq(outs_TCK[:, ::2].double(), own[:, ::2, None].double()).solution[..., 0].float()
    left, before = (
        (own[:, 1::2] - (outs_TCK[:, 1::2] @ one[..., None])[..., 0]).norm(dim=1) for one in (fitted, weights[tokens])
    )
    explained = max(0.0, 1 - float(left.norm() / before.norm().clamp_min(TINY)))
    if explained >= ENOUGH:
        size = weights * every_TKC.norm(dim=-1)
        seen = size > SEEN * mixed.pair.noise * mixed.pair.expected[0].norm(dim=-1, keepdim=True)
        of = Routed(chosen.long(), weights, seen, mixed.tokens.float().cpu().norm(dim=-1))
        if words := _words(fitted, of, tokens, is_exact=is_rounding(left, mixed, tokens)):
            yield Description("experts", words, explained, len(tokens))


def is_rounding(left: Tensor, mixed: Mixed, tokens: Tensor) -> bool:
    """Return whether what a fit leaves of half of the channels is mere rounding at nearly all tokens."""
    rounding = mixed.pair.noise * mixed.pair.expected[0][tokens].norm(dim=-1)
    return float((left <= rounding).float().mean()) >= ENOUGH


class Routed(NamedTuple):
    """Experts of tokens, the likeliest first, ``[T, K]``."""

    chosen: Tensor
    weights: Tensor
    seen: Tensor
    """Mask of the choices that change a token by more than rounding."""
    norms: Tensor
    """Norms of the experts' inputs ``[T]``."""

    @property
    def queue(self) -> Tensor:
        """Place of each choice among those of its expert, from 0 on."""
        flat = self.chosen.flatten()
        return F.one_hot(flat).cumsum(0).gather(1, flat[:, None]).view_as(self.chosen) - 1


def _words(fitted: Tensor, routed: Routed, tokens: Tensor, *, is_exact: bool) -> str:
    """Say how the weights are others; return an empty text if the fit is an approximation."""
    right, of = routed.weights[tokens], routed.chosen[tokens]
    by_score = right.sort(1, descending=True).values
    by_number = torch.empty_like(right).scatter(1, of.argsort(1), by_score)
    if _equal(fitted, by_number):
        return (
            "the largest weight of a token goes to its expert with the lowest number, the next one to the next number"
        )
    if _equal(fitted.sort(1).values, right.sort(1).values):
        return "each token's experts and weights are right, but the weights go to others of its experts"
    if _equal(fitted.where(_is_zero(fitted, right), right), fitted):
        return _left_out(_is_zero(fitted, right), routed, tokens)
    if not is_exact:
        return ""
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
    """Return which weights are left out: a small one that is right is not."""
    return (own.abs() < CLOSE * right.amax(1, keepdim=True)) & (own.abs() < right / 2)


def _left_out(is_zero: Tensor, routed: Routed, tokens: Tensor) -> str:
    """Say which choices have no weight, and what parts them from all others."""
    chosen, of = routed.chosen, routed.chosen.shape[1]
    dropped = torch.zeros_like(chosen, dtype=torch.bool)
    dropped[tokens] = is_zero
    experts = chosen[dropped].unique().tolist()
    if not dropped[:, :-1].any():
        fewer = f"{of - 1} expert{'s' * (of > 2)} instead of {of}"
        parted = parted_by(_properties(routed, slice(of - 1, of)), dropped[:, -1:], (routed.seen & ~dropped)[:, -1:])
        some = f"{int(dropped.sum()):,} of {len(chosen):,} tokens {are(int(dropped.sum()), 'have', 'has')} {fewer}"
        if parted:
            return f"{some}: those where {parted}"
    text = f"{int(dropped.sum()):,} of {dropped.numel():,} choices of an expert {are(int(dropped.sum()))} left out: "
    if parted := parted_by(_properties(routed, slice(of)), dropped, routed.seen & ~dropped):
        return f"{text}those where {parted}"
    text = f"{text}{'that' if dropped.sum() == 1 else 'those'} of {named('expert', experts)}"
    return text + (_of_queue(dropped, routed) if len(experts) > 1 else _of_end(dropped, routed, experts[0]))


def _properties(routed: Routed, slots: slice) -> dict[str, Tensor]:
    """Return properties of choices, by their words."""
    size = routed.weights[:, slots]
    of = "the last expert's weight" if size.shape[1] == 1 else "the weight"
    position = torch.arange(len(size))[:, None].expand_as(size)
    return {
        of: size,
        f"{of} over that of the token's first": size / routed.weights[:, :1].clamp_min(TINY),
        "the position": position,
        "the norm of the token": routed.norms[:, None].expand_as(size),
    }


def _of_queue(dropped: Tensor, routed: Routed) -> str:
    """Say that experts lose all tokens after a number of them; several experts must do so, and none keep more."""
    kept = int(routed.queue[dropped].min())
    later = (routed.queue >= kept) & routed.seen
    return f", after the first {kept} tokens of each" if not (later & ~dropped).any() else ""


def _of_end(dropped: Tensor, routed: Routed, expert: int) -> str:
    """Say that one expert loses its last tokens."""
    own = routed.chosen == expert
    lost, count = int(dropped.sum()), int(own.sum())
    if not bool((routed.queue[dropped] >= count - lost).all()):
        return f", at {lost:,} of its {count:,} tokens"
    others = [one for one in routed.chosen[~own].unique().tolist() if int((routed.chosen == one).sum()) >= count]
    more = f"; {len(others)} other expert{'s' * (len(others) > 1)} with as many keep{'s' * (len(others) == 1)} all"
    return f", the last {times(lost)} of its {count:,} tokens{more * bool(others)}"
