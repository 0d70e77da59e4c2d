"""Wrong logits of right blocks: the last hidden state is solved from them, and compared by channel.

Shapes: V tokens of the vocabulary, C channels.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.describe.core import CAPS
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.functions import Function, functions_of
from pytest_dsocr.describe.measured import is_time_over
from pytest_dsocr.describe.pair import TINY, RowPair, ranges, simplest
from pytest_dsocr.describe.step import applied

ROWS = 8
"""Rows of the head by channel that the state is solved from; all others verify it."""
LEAST_EIGEN = 1e-9
"""Least share of the largest eigenvalue at which the head has full column rank."""
CLOSE = 1e-3
"""Relative error of logits up to which a hidden state gives them."""
SAME = 2e-5
"""Largest difference of equal channels, relative to the largest one."""
PARTS = (2, 4, 8, 16)
HALVES = 2
MOST_BACK = 16
"""Number of positions before the last one that are looked at."""


class Head(NamedTuple):
    """The engine's part after the last block, with its input."""

    norm: nn.Module
    lm_head: nn.Module
    embeddings: Tensor
    """Weights ``[V, C]``."""
    given: Tensor
    """Output of the last block, ``[T, C]``."""


def of_head(actual_V: Tensor, expected_V: Tensor, head: Head) -> Iterator[Description]:
    """Yield other functions of the last norm, of the head or of the logits that give the subject's logits."""
    own, right = actual_V.float().cpu(), expected_V.float().cpu()
    before = (own - right).norm().clamp_min(TINY)
    for words, made in _other_logits(head, right):
        if is_time_over():
            return
        if made is not None and made.shape == own.shape:
            yield Description("head", words, max(0.0, 1 - float((own - made).norm() / before)), own.numel())


def _other_logits(head: Head, right: Tensor) -> Iterator[tuple[str, Tensor | None]]:
    """Yield other logits than the right ones, in words."""
    normed, last = head.norm(head.given), len(head.given) - 1

    def logits(function: Function, module: nn.Module, state: Tensor) -> Tensor | None:
        made = applied(function, module, state)
        return None if made is None else made.flatten()

    yield from ((f"the logits are capped at {cap:g}", cap * torch.tanh(right / cap)) for cap in CAPS)
    for place in range(max(0, last - MOST_BACK), last):
        words = f"the logits are those of position {place:,}, not of the last one, {last:,}"
        yield words, logits(head.lm_head, head.lm_head, normed[place])
    tied = partial(F.linear, weight=head.embeddings)
    yield "the head has the weights of the embeddings", logits(tied, head.lm_head, normed[-1])
    for words, function in functions_of(head.norm):
        normed_otherwise = applied(function, head.norm, head.given[-1:])
        made = None if normed_otherwise is None else logits(head.lm_head, head.lm_head, normed_otherwise)
        yield f"the output of the last norm is {words}", made
    for words, function in functions_of(head.lm_head):
        yield f"the output of the head is {words}", logits(function, head.lm_head, normed[-1:])


def of_hidden(actual_V: Tensor, expected_V: Tensor, head_VC: Tensor, gain_C: Tensor) -> Description | None:
    """Describe how the hidden state differs that gives the subject's logits; None if no state does, or if none differs.

    Args:
        actual_V: the subject's logits.
        expected_V: the expected ones.
        head_VC: weights of the head.
        gain_C: weights of the norm in front of it.
    """
    head, gain = head_VC.double().cpu(), gain_C.double().cpu()
    own, right = (_solved(one.double().cpu(), head) for one in (actual_V, expected_V))
    if own is None or right is None:
        return None
    return simplest(_relations(own, right, gain))


def _solved(logits: Tensor, head: Tensor) -> Tensor | None:
    """Return the state that gives the logits, found by some rows of the head and verified on the others."""
    step = max(1, len(head) // (ROWS * head.shape[1]))
    step = max(step, HALVES) if len(head) >= 2 * HALVES * head.shape[1] else step
    some = head[::step]
    squared = some.T @ some
    eigen = torch.linalg.eigvalsh(squared)
    if float(eigen[0]) < LEAST_EIGEN * float(eigen[-1]):
        return None
    found = torch.linalg.solve(squared, some.T @ logits[::step])
    left = float((head @ found - logits).norm())
    return found if left <= CLOSE * float(logits.norm()) else None


def _relations(own: Tensor, right: Tensor, gain: Tensor) -> Iterator[Description]:
    """Yield relations of two states, the simplest first."""
    count = len(own)

    def said(words: str, predicted: Tensor, where: slice = slice(None)) -> Description:
        left, before = ((own - one)[where].norm() for one in (predicted, right))
        share = max(0.0, 1 - float(left / before)) if before else 0.0
        text = f"the last hidden state, solved from the logits, {words}"
        return Description("hidden", text, share, count)

    without = right / gain
    yield said("is not multiplied by the weights of the last norm", without * (own @ without) / without.square().sum())
    more = right * (1 + 1 / gain)
    yield said("is multiplied by the weights of the last norm plus one", more * (own @ more) / more.square().sum())
    even = torch.arange(count) % 2 == 0
    offset = float((own - right)[even].median())
    yield said(f"is {offset:.3g} higher in each channel", right + offset, slice(1, None, 2))
    for parts in PARTS:
        if count % (2 * parts) == 0:
            factors = [_factor(own, right, part) for part in torch.arange(count).chunk(parts)]
            predicted = right * torch.tensor(factors).repeat_interleave(count // parts)
            named = "half" if parts == HALVES else f"part of {count // parts}"
            shown = ", ".join(f"{one:.4g}" for one in factors)
            words = f"has another factor in each {named} of its {count} channels: {shown}"
            yield said(words, predicted, slice(1, None, 2))
    for shift in range(1, count):
        if torch.allclose(right.roll(shift), own, rtol=CLOSE, atol=CLOSE * float(right.abs().max())):
            yield said(f"has its {count} channels moved by {shift}, around the end", right.roll(shift))
    order = torch.empty(count, dtype=torch.long)
    order[own.argsort()] = right.argsort()
    if float((own - right[order]).abs().max()) <= SAME * float(
        right.abs().max()
    ):  # any two states nearly fit if sorted
        yield said(f"has its {count} channels in another order: {ranges(order.tolist())}", right[order])
    pair = RowPair(own[None, :, None].float(), right[None, :, None].float(), noise=CLOSE)
    if 0 < (differing := pair.differing[0]).sum() <= count // 8 and not pair.not_equal[0][~differing].any():
        places = differing.nonzero().flatten().tolist()
        yield said(f"differs only in channels {ranges(places)} of {count}", own.where(differing, right))


def _factor(own: Tensor, right: Tensor, part: Tensor) -> float:
    """Return the factor of some channels, fitted on the even ones."""
    even = part[::2]
    return float((own[even] * right[even]).sum() / right[even].square().sum())
