"""Parts of a subject computed again on its own input: in float32, by the vendor's kernels, and under known mistakes.

This finds mistakes that are smaller than rounding, since rounding does not depend on a mistake's effect. Over some
hundred thousand values, the effect's share in the difference from the vendor's kernels is 1 with it, and 0 without.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.engine.checkpoint import dtype_named
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.mistake import NEVER_FILLED, Mistake, Precision, StagePart, blocks_of, model_of
from pytest_dsocr.explain.parts import ComputedPart
from pytest_dsocr.models import STAGE_NAMES
from pytest_dsocr.records.config import Setup
from pytest_dsocr.records.subject_result import Effect, Rounding

OWN_PRECISIONS: tuple[Precision, ...] = ("bfloat16", "float16", "tf32")
"""Formats that a subject in fewer bits than float32 may compute in."""
MAY_BE = (0.3, 3.0)
"""Range of the effect's share in one part from which on a mistake is tried on the other parts."""
OF_BLOCK: tuple[StagePart, ...] = ("block", "wide")
OF_ENDS: tuple[StagePart, ...] = ("front", "back")
USUAL_BIAS = 3.3
"""Bias of the vendor's kernels up to which tokens round independently. In CLIP's last blocks it is 100, as many tokens
are alike there: at full size, norms in float32 have 10.5 where the vendor's kernels have 36.7."""
LEAST = 1e-30
LEAST_ROWS = 64
"""Number of tokens below which each value counts as a row of its own."""


@dataclass(eq=False)
class Rounder:
    """Computes parts again, with engines that are loaded when they are first needed.

    Args:
        setup: the subject's.
        budget_s: CPU seconds for the known mistakes of one stage; 0 tries none.
        fewer_bits: whether the subject may compute in fewer bits than its dtype has.
    """

    setup: Setup
    budget_s: float
    fewer_bits: bool = False
    _candidates: dict[tuple[str, bool], list[Mistake]] = field(default_factory=dict)
    """Tried mistakes that may be in a stage, by the stage and whether it is taken as a whole."""
    _tried: defaultdict[tuple[str, bool], list[str]] = field(default_factory=lambda: defaultdict(list))
    """Ids of mistakes by stage and by whether the time was over before they were tried."""

    @cached_property
    def vendor(self) -> Engine[Any]:
        """Engine with the vendor's kernels in the subject's dtype."""
        setup = self.setup
        return Engine.from_checkpoint(
            setup.checkpoint, device=setup.device, dtype=setup.dtype, attention=setup.attention, instrument="off"
        )

    @cached_property
    def truth(self) -> Engine[Any]:
        """Engine that computes in float32 with a copy of the same weights."""
        vendor = self.vendor
        model = deepcopy(model_of(vendor)).float()
        return Engine(model, vendor.tokenizer, policy=vendor.policy, instrument="off", autocast=False)

    def forget(self) -> None:
        """Forget which mistakes were tried."""
        self._candidates.clear()
        self._tried.clear()

    def measure(self, parts: Sequence[ComputedPart]) -> dict[str, Rounding]:
        """Return the rounding of each stage. The known mistakes are tried at the first page on which it differs."""
        with _exact_products():
            found = {stage: self._stage(stage, [one for one in parts if one.stage == stage]) for stage in STAGE_NAMES}
        return {stage: rounding for stage, rounding in found.items() if rounding}

    def _stage(self, stage: str, parts: Sequence[ComputedPart]) -> Rounding | None:
        """Return the rounding of a stage; None if none of its parts can be computed."""
        computed = [(one, vendor) for one in parts if (vendor := self._by_vendor(one)) is not None]
        differing = [self._difference(*one) for one in computed if not torch.equal(one[0].gave.float(), one[1].float())]
        if not differing:
            return Rounding(len(computed)) if computed else None
        blocks = [one for one in differing if one.part.depth is not None]
        judged = blocks or differing
        worst = max(judged, key=lambda one: one.ratio)
        wholes = [one for one in differing if one.part.depth is None]
        in_blocks = self._effects(blocks, OF_BLOCK) if blocks else []
        in_whole = self._effects(wholes, OF_ENDS if blocks else (*OF_BLOCK, *OF_ENDS)) if wholes else []
        return Rounding(
            len(computed),
            sum(one.differing for one in differing) / sum(one.gave.numel() for one, _ in computed),
            not blocks,
            worst.part.name,
            worst.ratio,
            max(one.bias for one in judged),
            (*in_blocks, *in_whole),
            tuple(self._tried[stage, False]),
            len(self._tried[stage, True]),
            self.fewer_bits,
            worst.is_exact,
        )

    def _by_vendor(self, part: ComputedPart) -> Tensor | None:
        """Return the output of the vendor's kernels; None if this model lacks the part or its shape differs."""
        try:
            vendor = part.compute(self.vendor)
        except torch.OutOfMemoryError:
            raise
        except (IndexError, RuntimeError):
            return None
        return vendor if vendor.shape == part.gave.shape else None

    def _difference(self, part: ComputedPart, vendor: Tensor) -> _Difference:
        blocks = blocks_of(self.truth, part.stage) if part.depth is None else []
        last: list[Tensor] = []
        with blocks[-1].register_forward_hook(lambda _m, _a, out: last.append(out)) if blocks else nullcontext():
            truth = part.compute(self.truth, wide=True)
        unit = torch.finfo(dtype_named(self.setup.dtype)).eps
        return _Difference(part, _rows(part.gave), _rows(vendor), _rows(truth), next(iter(last), None), unit)

    def _effects(self, differing: Sequence[_Difference], kinds: Sequence[StagePart]) -> list[Effect]:
        """Return the effects of the mistakes that may be there, among all or those left at an earlier page.

        A mistake is left if the part with the largest error may have it, or the last part: blocks differ in kind.
        """
        from pytest_dsocr.explain.catalogue import groups  # a run without a difference does not need it

        known = groups(self.vendor.family)

        stage, place = differing[0].part.stage, (differing[0].part.stage, differing[0].part.depth is None)
        if place in self._candidates:
            return [self._share(one, differing) for one in self._candidates[place]]
        screen = {id(one): one for one in (max(differing, key=lambda one: one.ratio), differing[-1])}
        deadline, self._candidates[place] = Deadline(self.budget_s), []
        for one in known[stage].of(*kinds) if stage in known and self.budget_s else ():
            allowed = one.precision is not None and (self.fewer_bits or one.precision in OWN_PRECISIONS)
            if allowed or one.kind == NEVER_FILLED:
                continue
            is_late = deadline.is_over
            self._tried[stage, is_late].append(one.id)
            if not is_late and any(MAY_BE[0] < self._share(one, [part]).share < MAY_BE[1] for part in screen.values()):
                self._candidates[place].append(one)
        return [self._share(one, differing) for one in self._candidates[place]]

    def _share(self, one: Mistake, differing: Sequence[_Difference]) -> Effect:
        """Return the share of a mistake's effect in these differences; 0 if it has none or cannot be planted."""
        products, squares, likelihood = [], [], 0.0
        for difference in differing:
            try:
                blocks = difference.blocks if one.part == "back" else None
                changed = _rows(difference.part.compute(self.truth, one, wide=True, blocks=blocks))
                effect = changed - difference.truth
            except Exception:  # a mistake may not fit the sizes of this checkpoint
                return Effect(one.id, one.words, 0.0, math.inf)
            product, square = (difference.apart * effect).sum(1), (effect * effect).sum(1)
            likelihood += float(((product - square / 2) / difference.variance).sum())
            weights = 1 / (difference.noise + square).clamp_min(1e-60)
            products.append(product * weights)
            squares.append(square * weights)
        product, square = torch.cat(products), torch.cat(squares)
        total = float(square.sum())
        if not total or not math.isfinite(total):
            return Effect(one.id, one.words, 0.0, math.inf)
        share = float(product.sum()) / total
        error = float((product - share * square).pow(2).sum().sqrt()) / total
        return Effect(one.id, one.words, share, error, likelihood, differing[0].part.depth is None)


class _Difference:
    """Differences between three computations of a part, in float64; rows are tokens.

    Args:
        part: the part.
        actual: the subject's output.
        vendor: the output of the vendor's kernels.
        truth: the output in float32.
        blocks: of a whole stage, the output of its last block in float32.
        unit: relative error of one rounding in the subject's dtype.
    """

    def __init__(
        self, part: ComputedPart, actual: Tensor, vendor: Tensor, truth: Tensor, blocks: Tensor | None, unit: float
    ) -> None:
        self.part, self.truth, self.blocks = part, truth, blocks
        self.apart = actual - vendor
        own, vendors = actual - truth, vendor - truth
        self.noise = vendors.pow(2).sum(1) + self.apart.pow(2).sum(1)
        """Squared error of each token, so that one with another expert does not outweigh all others."""
        self.variance = (self.noise / actual.shape[1]).clamp_min(1e-60)
        self.differing = int((self.apart != 0).sum())
        self.is_exact = not vendors.any()
        self.ratio = _units(own, truth, unit) if self.is_exact else _ratio(own, vendors)
        self.bias = min(_bias(self.apart), _bias(own)) / max(1.0, _bias(vendors) / USUAL_BIAS)


def _ratio(own: Tensor, vendors: Tensor) -> float:
    return float((own.norm(dim=1) / vendors.norm(dim=1).clamp_min(LEAST)).median())


def _units(own: Tensor, truth: Tensor, unit: float) -> float:
    """Return the largest relative error of a token, in units of rounding."""
    return float((own.norm(dim=1) / truth.norm(dim=1).clamp_min(LEAST)).max()) / unit


def _bias(rows: Tensor) -> float:
    """Return the mean over channels of the squared mean over tokens, in squares of its standard error."""
    if len(rows) < LEAST_ROWS or rows.shape[1] == 1:
        return 0.0
    mean, variance = rows.mean(0), rows.var(0) / len(rows)
    moving = variance > 0
    return float((mean[moving] ** 2 / variance[moving]).mean()) if moving.any() else 0.0


def _rows(tensor: Tensor) -> Tensor:
    """Return a row for each token, also of features ``[N, C, h, w]``; with few tokens, a row for each value."""
    if tensor.ndim == 4 and tensor.shape[-1] == tensor.shape[-2]:
        tensor = tensor.movedim(1, -1)
    rows = tensor.double().reshape(-1, tensor.shape[-1])
    return rows if len(rows) >= LEAST_ROWS else rows.reshape(-1, 1)


@contextmanager
def _exact_products() -> Iterator[None]:
    """Compute float32 products on a GPU in float32, not in TF32."""
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [one.allow_tf32 for one in backends]
    try:
        for one in backends:
            one.allow_tf32 = False
        yield
    finally:
        for one, was in zip(backends, before, strict=True):
            one.allow_tf32 = was
