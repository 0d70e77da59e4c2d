"""Describe which part of a block differs, from its input: alternatives are computed, and the nearest is verified.

The alternatives are parameters of one computation, not known mistakes. Half of some rows choose among them, and the
other half verify the choice.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.describe.block import RIGHT, Activation, Block, Variant
from pytest_dsocr.describe.description import ENOUGH, Description
from pytest_dsocr.describe.heads import of_heads
from pytest_dsocr.describe.measured import is_time_over
from pytest_dsocr.describe.nearest_factor import coarse, refined
from pytest_dsocr.describe.pair import SEED, RowPair, share
from pytest_dsocr.describe.partly import partly_turned
from pytest_dsocr.describe.score_factor import factor_of_scores

MOST_ROWS = 32
"""Number of rows of each half that are computed."""
LEAST_ROWS = 4
AS_RIGHT = 0.05
"""Difference of the right alternative from the engine's block, relative to the subject's, above which none is tried."""
NEARER = 0.1
"""Share from which on a number is refined."""
MOST_REFINED = 2
"""Number of numbers that are refined."""
STEPS = 18
ACTIVATIONS: dict[str, Activation] = {
    "SiLU": F.silu,
    "the exact GELU": F.gelu,
    "the GELU by tanh": partial(F.gelu, approximate="tanh"),
    "the quick GELU": lambda x: x * torch.sigmoid(1.702 * x),
    "ReLU": F.relu,
    "a sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "no activation": torch.clone,
    "a squared ReLU": lambda x: F.relu(x).square(),
}
MERGED = (("head", "part", "channel"), ("head", "channel", "part"), ("channel", "part", "head"))
"""Other orders of the axes of queries, keys and values that are one matrix: part, head and channel."""
EXCHANGED = (("queries and keys are exchanged", (1, 0, 2)), ("queries and values are exchanged", (2, 1, 0)))
ALL_SEEN = Variant("mask", "every query sees all keys", reach=None)
ShareOf = Callable[[Variant], float]


class FreeNumber(NamedTuple):
    """A number of a block that may be another, found on a scale of ratios."""

    field: str
    kind: str
    words: str
    """Words with a place for the number."""
    of_decoder: bool = False
    of_bias: bool = False
    most: int = 4
    """Largest ratio that is tried, as a power of two."""


NUMBERS = (
    FreeNumber("score_factor", "scores", "the scores are multiplied by {:.3g}"),
    FreeNumber("attention_factor", "attention", "the output of attention counts {:.3g} times"),
    FreeNumber("mlp_factor", "mlp", "the output of the perceptron counts {:.3g} times"),
    FreeNumber("position_factor", "positions", "the rotary positions are multiplied by {:.3g}", of_decoder=True),
    FreeNumber(
        "base_factor",
        "positions",
        "the base of the rotary frequencies is multiplied by {:.3g}",
        of_decoder=True,
        most=8,
    ),
    FreeNumber("bias_factor", "bias", "the scores of relative positions are multiplied by {:.3g}", of_bias=True),
)


def describe_block(block: Block, pair: RowPair) -> Description | None:
    """Return the alternative that reproduces the subject's output of one view, ``[1, T, C]``; None if none does.

    Args:
        block: the engine's block with the subject's input.
        pair: the subject's output and that of the engine's block.
    """
    rows = pair.differing[0].nonzero().flatten()
    if len(rows) < 2 * LEAST_ROWS:
        return None
    made = torch.Generator().manual_seed(SEED)
    rows = rows[torch.randperm(len(rows), generator=made)[: 2 * MOST_ROWS]]
    right = (~pair.differing[0]).nonzero().flatten()
    fit, test = rows[::2], torch.cat([rows[1::2], right[:: len(right) // MOST_ROWS + 1]])
    own = block.compute(RIGHT, fit.to(block.x.device)).float().cpu()
    if float((own - pair.expected[0, fit]).norm() / (pair.apart[0, fit]).norm()) > AS_RIGHT:
        return None
    measured = partial(_share, block, pair, fit)
    first = int(pair.differing[0].nonzero()[0])
    best = max(_tried(block, measured, first), key=lambda one: one[0])
    if best[0] < ENOUGH:
        at = fit.to(block.x.device)
        variants = of_heads(
            lambda how: block.compute(how, at).float().cpu(),
            pair.actual[0, fit],
            block.head_count,
            is_decoder=block.is_decoder,
        )
        best = max(((measured(how), how) for how in variants), key=lambda one: one[0], default=best)
    if best[0] < ENOUGH:
        return None
    kind, text, factor = best[1].kind, best[1].text, best[1].score_factor
    words = text if factor == RIGHT.score_factor else factor_of_scores(factor, block.head_width)
    return Description(kind, words, _share(block, pair, test, best[1]), len(test))


def _share(block: Block, pair: RowPair, rows: Tensor, how: Variant) -> float:
    predicted = block.compute(how, rows.to(block.x.device)).float().cpu()
    return share(pair.only(rows), predicted[None]) if torch.isfinite(predicted).all() else 0.0


def _tried(block: Block, measured: ShareOf, first: int) -> Iterator[tuple[float, Variant]]:
    """Yield alternatives with the share that they explain; after one that explains all but rounding, no more."""
    for how in _alternatives(block, first):
        explained = measured(how)
        yield explained, how
        if explained > 1 - (1 - ENOUGH) / 10:
            return
    if is_time_over():
        return
    numbers = [one for one in NUMBERS if one.of_decoder <= block.is_decoder and one.of_bias <= block.has_bias]
    found = [(*_coarse(one, measured), one) for one in numbers]
    found.sort(key=lambda one: -one[0])
    yield from (_refined(one, best, measured) for explained, best, one in found[:MOST_REFINED] if explained > NEARER)


def _shares(number: FreeNumber, measured: ShareOf) -> Callable[[float], float]:
    """Return what measures a value of a number."""
    return lambda value: measured(_variant(number, value))


def _coarse(number: FreeNumber, measured: ShareOf) -> tuple[float, float]:
    """Return the best of some ratios, as the share that it explains and a power of two."""
    return coarse(_shares(number, measured), (k / 2 for k in range(-2 * number.most, 2 * number.most + 1) if k))


def _refined(number: FreeNumber, best: float, measured: ShareOf) -> tuple[float, Variant]:
    """Return the best value of a number near a power of two."""
    how = _variant(number, refined(_shares(number, measured), best, 0.5, STEPS))
    return measured(how), how


def _variant(number: FreeNumber, value: float) -> Variant:
    how: Variant = replace(Variant(number.kind, number.words.format(value)), **{number.field: value})  # type: ignore[arg-type]
    return how


def _alternatives(block: Block, first: int) -> Iterator[Variant]:
    """Yield alternatives without a number to refine, the simplest first; ``first`` is the first row that differs."""
    yield Variant("attention", "the output of attention is not added", attention_factor=0.0)
    yield Variant("mlp", "the output of the perceptron is not added", mlp_factor=0.0)
    yield Variant("norms", "the norm before attention is left out", norms=(False, True))
    yield Variant("norms", "the norm before the perceptron is left out", norms=(True, False))
    for name, activation in ACTIVATIONS.items():
        yield Variant("activation", f"the activation is {name}", activation=activation)
    for text, order in (*([] if block.shares_keys else EXCHANGED), ("keys and values are exchanged", (0, 2, 1))):
        yield Variant("heads", text, order=order)
    for head in range(block.head_count):
        factors = torch.ones(block.head_count).index_fill(0, torch.tensor([head]), 0.0)
        yield Variant("heads", f"head {head} of {block.head_count} has no output", head_factors=factors)
    for place, name in enumerate(("queries", "keys", "values")):
        for shift in (1, -1):
            heads = tuple(shift * (k == place) for k in range(3))
            way = "next" if shift < 0 else "previous"
            yield Variant("heads", f"the {name} of each head are those of the {way} one", heads=heads)  # type: ignore[arg-type]
    yield Variant("heads", "the channels of all heads are joined channel by channel, not head by head", merged=False)
    for axes in (("part", "channel", "head"), *([] if block.is_decoder else MERGED)):
        names = ", then ".join(f"by {one}" for one in axes if one != "part" or not block.is_decoder)
        yield Variant("heads", f"the channels of queries, keys and values are split {names}", split=axes)
    if block.shares_keys:
        yield Variant("heads", "the heads of keys and values are repeated all together, not one by one", tiled=True)
    if block.is_decoder:
        yield from _rotations(block.head_width)
        yield from _masks(len(block.x), first) if block.sees is None else _other_masks()
    if block.has_bias:
        yield Variant("bias", "the scores of relative positions are left out", bias_factor=0.0)
        yield Variant("bias", "the tables of relative rows and columns are exchanged", bias="exchanged")
        yield Variant("bias", "the tables of relative positions are read backwards", bias="reversed")
        for shift in (1, -1, 2, -2):
            far = f"{abs(shift)} {'late' if shift > 0 else 'early'}"
            yield Variant("bias", f"the tables of relative positions are read {far}", bias_shift=shift)


def _rotations(width: int) -> Iterator[Variant]:
    for name in ("none", "neighbours", "backwards"):
        words = {
            "none": "nothing is rotated by its position",
            "neighbours": "rotary positions rotate neighbouring channels",
            "backwards": "rotary positions rotate backwards",
        }[name]
        yield Variant("positions", words, rotation=name)
    for shift in (1, -1, 2, -2, 3, -3):
        far = f"{abs(shift)} {'higher' if shift > 0 else 'lower'}"
        yield Variant("positions", f"queries are rotated by positions {far} than keys", query_shift=shift)
    for one in partly_turned(width):
        yield Variant("positions", one.words, partly=one)


def _other_masks() -> Iterator[Variant]:
    yield ALL_SEEN
    yield Variant("mask", "each row sees itself and the rows before it, as in a causal mask", is_causal=True)


def _masks(tokens: int, first: int) -> Iterator[Variant]:
    yield ALL_SEEN
    for reach in (1, 2, 3):
        yield Variant("mask", f"each query sees {reach} later key{'s' * (reach > 1)}", reach=reach)
    for reach in (1, 2):
        without = "itself" if reach == 1 else f"itself and {reach - 1} key before it"
        yield Variant("mask", f"no query sees {without}", reach=-reach)
    for hidden in (1, 2, 3, 4):
        yield Variant("mask", f"the first {'key is' if hidden == 1 else f'{hidden} keys are'} hidden", hidden=hidden)
    for window in (16, 32, 64, 128, 256, 512, 1024):
        if window < tokens:
            yield Variant("mask", f"each query sees its {window} last keys alone", window=window)
    if first:
        aligned = f"each block of {first} queries sees the keys that the first one sees (a mask from the top left)"
        yield Variant("mask", aligned, chunk=first)
        yield Variant("mask", f"each block of {first} queries sees its own keys alone", chunk=first, is_local=True)
