"""Products that count some numbers otherwise: the bias, some channels of the input, or fewer bits of both factors.

The numbers are measured on the subject's output. Shapes: R rows, I channels of the input, O of the output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.base.words import joined
from pytest_dsocr.describe.functions import PARTS, Function
from pytest_dsocr.describe.grids import BLOCK, grids_of, in_squares
from pytest_dsocr.describe.measured import is_time_over
from pytest_dsocr.describe.pair import TINY, named, spread
from pytest_dsocr.describe.rounding import FORMS, OF_INPUTS, WITH_ZERO, Form
from pytest_dsocr.layers.norms import LayerNorm2d

MOST_ROWS = 256
"""Number of rows that numbers are measured on; they are verified on all."""
MOST_CHANNELS = 4096
"""Number of channels of the input up to which the factor of each is measured."""
FEW_OUTPUTS = 32
"""Number of outputs that a grid is chosen on."""
RIDGE = 1e-4
"""Share of the mean square of a channel that is added to each, so that unused channels count once."""
SEEN = 0.5
"""Difference of a channel's factor, relative to the largest one, from which on the channel counts otherwise."""
ONE = 1e-3
"""Distance of a factor from a whole number that counts as none."""
EXACT = 1e-4
"""Distance of a squared factor from a whole number that counts as none, relative to it."""


def products_of(module: nn.Module, given: Tensor, gave: Tensor) -> Iterator[tuple[str, Function]]:
    """Yield other functions than a module's own, with numbers that fit its output, in words that follow "it is".

    Args:
        module: a linear layer, a convolution or a norm.
        given: the subject's input, in the module's dtype.
        gave: the subject's output, in any shape with as many values as the module's.
    """
    if getattr(module, "bias", None) is not None:
        yield from _of_bias(module, given, gave)
    if isinstance(module, nn.Linear) and module.in_features <= MOST_CHANNELS:
        yield from _of_channels(module, given, gave)
    if isinstance(module, nn.Linear):
        yield from _of_forms(module, given, gave)
        yield from _of_grids(module, given, gave)


def _of_bias(module: Any, given: Tensor, gave: Tensor) -> Iterator[tuple[str, Function]]:
    """Yield a module with another factor of its bias, or of the bias of queries, keys or values."""
    right = module(given)
    bias, axis = module.bias.detach(), 1 if isinstance(module, nn.Conv2d | LayerNorm2d) else -1
    apart = (gave.reshape(right.shape).to(right) - right).movedim(axis, -1).flatten(0, -2)[::2].float().mean(0)
    is_of_three = isinstance(module, nn.Linear) and module.out_features == 3 * module.in_features
    parts = 3 if is_of_three else 1
    each = [
        1 + float((own * of).sum() / of.square().sum().clamp_min(TINY))
        for own, of in zip(apart.chunk(parts), bias.float().chunk(parts), strict=True)
    ]
    others = {part: one for part, one in zip(PARTS, each, strict=False) if abs(one - 1) > ONE}
    if not others:
        return
    if len(others) == len(each) and max(each) - min(each) <= ONE:
        words = f"the right output with its bias {_times(each[0])}"
    else:
        words = f"the product with the bias of {joined([f'the {part} {_times(of)}' for part, of in others.items()])}"
    factors = torch.tensor(each).to(bias).repeat_interleave(len(bias) // parts)
    more = ((factors - 1) * bias).view(-1, *(1,) * (right.ndim - 2)) if axis == 1 else (factors - 1) * bias
    yield words, lambda x: module(x) + more


def _times(factor: float) -> str:
    """Return a factor in words, with the root that it is, if it is one."""
    square = factor * factor
    for number, words in ((square, "the root of {}"), (1 / max(square, TINY), "one over the root of {}")):
        whole = round(number)
        is_root = whole > 1 and math.isqrt(whole) ** 2 != whole and abs(number - whole) <= EXACT * whole
        if factor > 0 and is_root:
            return f"{factor:.3g} times ({words.format(whole)})"
    return f"{factor:.3g} times"


def counted(weight_OI: Tensor, given_RI: Tensor, apart_RO: Tensor) -> tuple[Tensor, float] | None:
    """Return which channels of a product's input count otherwise, ``[I]``, and how often; None if all do alike.

    The factor of each channel solves the normal equations, whose matrix is the product of two Gram matrices.

    Args:
        weight_OI: the right weight.
        given_RI: the input.
        apart_RO: the wrong output minus the right one.
    """
    weight, given, apart = (one.detach().float() for one in (weight_OI, given_RI, apart_RO))
    matrix = (weight.T @ weight) * (given.T @ given)
    power = matrix.diagonal().clone()
    matrix.diagonal().add_(RIDGE * power.mean() + TINY)
    root, failed = torch.linalg.cholesky_ex(matrix)
    if failed:
        return None
    more = torch.cholesky_solve((given * (apart @ weight)).sum(0)[:, None], root)[:, 0]
    mask = more.abs() > SEEN * more.abs().max()
    if not mask.any() or mask.all():
        return None
    factor = 1 + float((more * power)[mask].sum() / power[mask].sum().clamp_min(TINY))
    return mask.cpu(), float(round(factor)) if abs(factor - round(factor)) <= ONE else factor


def _of_channels(module: nn.Linear, given: Tensor, gave: Tensor) -> Iterator[tuple[str, Function]]:
    """Yield a product in which some channels of the input are left out, or count otherwise."""
    rows = given.flatten(0, -2)
    some = spread(len(rows), MOST_ROWS)
    apart = gave.reshape(len(rows), -1)[some].to(rows) - module(rows[some])
    if (found := counted(module.weight, rows[some], apart)) is not None:
        mask, factor = found
        factors = torch.where(mask, factor, 1.0).to(given)
        which = f"{named('channel', mask.nonzero().flatten().tolist())} of its {len(mask)} inputs"
        how = f"without {which}" if factor == 0 else f"with {which} counted {factor:.3g} times"
        yield f"the product {how}", lambda x: module(x * factors)


def _of_forms(module: nn.Linear, given: Tensor, gave: Tensor) -> Iterator[tuple[str, Function]]:
    """Yield the product of the forms of weight and input that is nearest: the best one of each, with any of the other.

    A form of one factor leaves the rounding of the other, which is no part of any wrong form.
    """
    rows, weight, bias = given.flatten(0, -2), module.weight.detach(), module.bias
    some = spread(len(rows), MOST_ROWS)
    target = gave.reshape(len(rows), -1)[some].to(rows)
    forms: Mapping[str, Form] = {"": torch.clone, **FORMS, **WITH_ZERO}
    weights = {words: form(weight).to(weight) for words, form in forms.items()}
    inputs = {words: form(rows)[some].to(rows) for words, form in {"": torch.clone, **OF_INPUTS}.items()}

    def left(words: tuple[str, str]) -> float:
        return float((target - F.linear(inputs[words[1]], weights[words[0]], bias)).norm())

    of_weight = min(weights, key=lambda words: left((words, "")))
    of_input = min(inputs, key=lambda words: left(("", words)))
    best = min([*((of_weight, one) for one in inputs), *((one, of_input) for one in weights)], key=left)
    if best[1]:
        of = f"of the weight rounded to {best[0]} and " if best[0] else "with "
        yield f"the product {of}the input rounded to {best[1]}", partial(_rounded, weights[best[0]], bias, best[1])
    elif best[0] in WITH_ZERO:
        words = f"the product with the weight rounded to {best[0]}"
        yield words, _with_weight(module, weights[best[0]])


def _of_grids(module: nn.Linear, given: Tensor, gave: Tensor) -> Iterator[tuple[str, Function]]:
    """Yield the product with the weight on the nearest grid, which some rows and the first outputs choose."""
    rows, weight = given.flatten(0, -2), module.weight.detach()
    some = spread(len(rows), MOST_ROWS)
    inputs = rows[some].float()
    apart = (gave.reshape(len(rows), -1)[some].to(rows) - module(rows[some])).float()

    def left(form: Form, outputs: int = FEW_OUTPUTS) -> float:
        few = weight[:outputs].float()
        return float((apart[:, :outputs] - F.linear(inputs, form(few) - few)).norm())

    if is_time_over():
        return
    grid = min(grids_of(module.in_features), key=lambda one: left(one.on))
    of = {grid.words: min(grid.forms(), key=left), f"float8 (e4m3) in squares of {BLOCK}": in_squares}
    words = min(of, key=lambda one: left(of[one], BLOCK))
    yield f"the product with the weight rounded to {words}", _with_weight(module, of[words](weight).to(weight))


def _with_weight(module: nn.Linear, weight: Tensor) -> Function:
    return partial(F.linear, weight=weight, bias=module.bias)


def _rounded(weight: Tensor, bias: Tensor | None, words: str, x: Tensor) -> Tensor:
    return F.linear(OF_INPUTS[words](x.flatten(0, -2)).to(x).view_as(x), weight, bias)
