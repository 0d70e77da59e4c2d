"""Describe which experts of a layer give other outputs, and whose outputs these are.

Shapes: T tokens, C channels, K experts of a token, E experts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.describe.description import ENOUGH, Description
from pytest_dsocr.describe.measured import measured
from pytest_dsocr.describe.pair import RowPair, halves, named, share, simplest
from pytest_dsocr.describe.products import MOST_CHANNELS, counted
from pytest_dsocr.describe.routing import of_routing
from pytest_dsocr.describe.weights import of_places, of_weights
from pytest_dsocr.layers.experts import MixtureOfExperts

MOST_TOKENS = 128
"""Number of tokens on which every expert is run."""
LEAST_TOKENS = 4
MOST_COUNTED = 32
"""Number of tokens on which other numbers of experts are tried."""
FEW = 4
"""Number of experts up to which their outputs are looked for."""
NEARLY_ALL = 0.9
DIGITS = 5
"""Digits of a factor after the point; what is left is rounding."""


@dataclass(frozen=True, eq=False)
class Mixed:
    """Tokens that go into the experts of a layer, and what the subject returned."""

    pair: RowPair
    """Output of the layer, ``[1, T, C]``."""
    experts: MixtureOfExperts
    tokens: Tensor
    """Input of the experts ``[T, C]``."""
    before: Tensor
    """Tensor to which their output is added, ``[T, C]``."""

    @cached_property
    def routed(self) -> tuple[Tensor, Tensor]:
        """Each token's experts and their weights, ``[T, K]``."""
        chosen, weights = self.experts.gate(self.tokens)
        return chosen, weights

    @cached_property
    def shared(self) -> Tensor:
        """Output of the shared experts, ``[T, C]``."""
        out: Tensor = self.experts.shared_experts(self.tokens)
        return out

    @cached_property
    def scores(self) -> Tensor:
        """Score of every expert for each token ``[T, E]``."""
        return F.linear(self.tokens.float(), self.experts.gate.weight.float()).softmax(-1)

    def output_of(self, expert: int, tokens: Tensor) -> Tensor:
        """Return an expert's output for some tokens."""
        out: Tensor = self.experts.experts[expert](self.tokens[tokens])
        return out


def describe_experts(mixed: Mixed) -> Description | None:
    """Return the experts that differ or the sum of outputs that was returned; None if neither explains it."""
    few = [*measured(_of_few, mixed)]
    first = (measured(one, mixed) for one in (_of_sums, _of_counts, _of_inner, of_places))
    then = (measured(one, mixed) for one in (of_weights, of_routing))
    return simplest(chain(*first, few[:-1], *then, few[-1:]))


def _of_sums(mixed: Mixed) -> Iterator[Description]:
    """Yield factors of the shared and of the routed experts' outputs, fitted on half of the tokens."""
    pair = mixed.pair
    own = pair.actual[0] - mixed.before.float().cpu()
    shared = mixed.shared.float().cpu()
    routed = pair.expected[0] - mixed.before.float().cpu() - shared
    fit, test = halves(pair.actual.shape[:2])
    if min(int(fit.sum()), int(test.sum())) < LEAST_TOKENS:
        return
    columns = torch.stack([shared[fit[0]].flatten(), routed[fit[0]].flatten()], 1).double()
    found = torch.linalg.lstsq(columns, own[fit[0]].flatten()[:, None].double()).solution.flatten().tolist()
    of_shared, of_routed = (round(one, DIGITS) + 0.0 for one in found)
    text = f"the shared experts {_counted(of_shared)}, and the routed ones {_counted(of_routed)}"
    predicted = mixed.before.float().cpu() + of_shared * shared + of_routed * routed
    yield Description("experts", text, share(pair, predicted[None], test), int(test.sum()))
    weights = mixed.routed[1].sum(1, keepdim=True).float().cpu()
    one = torch.ones_like(weights)
    for text, for_shared, for_routed in (
        ("the weights of each token's experts are divided by their sum", one, 1 / weights),
        ("the shared experts' output is multiplied by the sum of the token's weights", weights, one),
        ("all experts' outputs are multiplied by the sum of the token's weights", weights, weights),
    ):
        predicted = mixed.before.float().cpu() + for_shared * shared + for_routed * routed
        yield Description("experts", text, share(pair, predicted[None]), len(own))


def _counted(factor: float) -> str:
    known = {0.0: "are left out", 1.0: "count once", 2.0: "count twice"}
    return known.get(factor, f"count {factor:.3g} times")


def _of_inner(mixed: Mixed) -> Iterator[Description]:
    """Yield channels inside of the shared experts that are left out, found on half of the tokens."""
    shared = mixed.experts.shared_experts
    inner = F.silu(shared.gate_proj(mixed.tokens)) * shared.up_proj(mixed.tokens)
    fit, test = halves(mixed.pair.actual.shape[:2])
    if min(int(fit.sum()), int(test.sum())) < LEAST_TOKENS or inner.shape[1] > MOST_CHANNELS:
        return
    found = counted(shared.down_proj.weight.cpu(), inner.cpu()[fit[0]], mixed.pair.apart[0][fit[0]])
    if found is not None:
        mask, factor = found
        more = shared.down_proj(inner * (factor - 1) * mask.to(inner)).float().cpu()
        which = named("channel", mask.nonzero().flatten().tolist())
        verb = ("is", "counts") if int(mask.sum()) == 1 else ("are", "count")
        how = f"{verb[0]} left out" if factor == 0 else f"{verb[1]} {factor:.3g} times"
        text = f"inside the shared experts, {which} of {len(mask)} {how}"
        yield Description("experts", text, share(mixed.pair, mixed.pair.expected + more, test), int(test.sum()))


def _of_counts(mixed: Mixed) -> Iterator[Description]:
    """Yield another number of experts of each token, found on a few tokens and verified on all."""
    every = torch.arange(len(mixed.tokens))
    few = every[:: max(1, len(every) // MOST_COUNTED)]
    if len(few) < LEAST_TOKENS:
        return
    gate = mixed.experts.gate
    right = gate.experts_per_token
    scores = mixed.scores
    for count in range(1, min(2 * right, scores.shape[1]) + 1):
        if count == right:
            continue
        for tokens in (few, every):
            weights, chosen = scores[tokens].topk(count)
            outs = mixed.experts.run_looped(mixed.tokens[tokens], chosen).float().unflatten(0, chosen.shape)
            routed = (weights[..., None] * outs).sum(1).cpu() * gate.scale
            predicted = mixed.before[tokens].float().cpu() + mixed.shared[tokens].float().cpu() + routed
            explained = share(mixed.pair.only(tokens), predicted[None])
            if explained < ENOUGH:
                break
        else:
            text = f"each token has {count} expert{'s' * (count > 1)} instead of {right}"
            yield Description("experts", text, explained, len(every))


def _of_few(mixed: Mixed) -> Iterator[Description]:
    """Yield other experts that give the outputs of some, and last the experts at whose tokens alone it differs."""
    chosen, weights = (one.cpu() for one in mixed.routed)
    differs = mixed.pair.differing[0]
    count = len(mixed.experts.experts)
    wrong = [
        expert
        for expert in range(count)
        if (tokens := (chosen == expert).any(1)).any() and float(differs[tokens].float().mean()) > NEARLY_ALL
    ]
    inside = torch.isin(chosen, torch.tensor(wrong)).any(1) if wrong else torch.zeros_like(differs)
    if not wrong or len(wrong) > FEW or (differs & ~inside).any():
        return
    where = f"only the {int(differs.sum())} tokens that are routed to {named('expert', wrong)} differ"
    sources = {one: _source(mixed, one, wrong, chosen, weights) for one in wrong}
    if all(found is not None for found in sources.values()):
        known = {one: found for one, found in sources.items() if found is not None}
        predicted = mixed.pair.expected[0].clone()
        for one, (source, factor) in known.items():
            tokens = (chosen == one).any(1)
            weight = (weights * (chosen == one)).sum(1)[tokens, None].float()
            other = factor * mixed.output_of(source, tokens).float().cpu()
            predicted[tokens] += weight * (other - mixed.output_of(one, tokens).float().cpu())
        explained = share(mixed.pair, predicted[None])
        yield Description("experts", f"{where}; {_words(known)}", explained, int(differs.sum()))
    energy = float(mixed.pair.apart[0][inside].norm() / mixed.pair.apart.norm())
    yield Description("experts", where, 1 - max(0.0, 1 - energy**2) ** 0.5, int(differs.sum()))


def _source(mixed: Mixed, expert: int, wrong: list[int], chosen: Tensor, weights: Tensor) -> tuple[int, float] | None:
    """Return the expert with the output that is returned for another, and its factor, found on the tokens of one."""
    alone = (chosen == expert).any(1) & (torch.isin(chosen, torch.tensor(wrong)).sum(1) == 1)
    tokens = alone.nonzero().flatten()[:MOST_TOKENS]
    if len(tokens) < LEAST_TOKENS:
        return None
    weight = (weights * (chosen == expert)).sum(1)[tokens, None].float()
    apart = mixed.pair.apart[0][tokens] / weight
    returned = apart + mixed.output_of(expert, tokens).float().cpu()
    best: tuple[float, int, float] | None = None
    for other in range(len(mixed.experts.experts)):
        out = mixed.output_of(other, tokens).float().cpu()
        factor = float((returned * out).sum() / out.pow(2).sum().clamp_min(1e-30))
        left = float((returned - factor * out).norm())
        best = (left, other, factor) if best is None or left < best[0] else best
    assert best is not None
    return best[1], round(best[2], 3) + 0.0


def _words(sources: dict[int, tuple[int, float]]) -> str:
    one = len(sources) == 1
    outputs = "its output is" if one else "their outputs are"
    others = [source for source, _ in sources.values()]
    factors = {factor for _, factor in sources.values()}
    if factors == {0.0}:
        return f"{outputs} left out"
    if factors == {1.0}:
        return f"{outputs} {'that of expert' if one else 'those of experts'} {' and '.join(map(str, others))}"
    if others == [*sources] and len(factors) == 1:
        return f"{outputs} multiplied by {factors.pop():g}"
    return ", ".join(f"expert {own} returns {factor:g} times expert {of}" for own, (of, factor) in sources.items())
