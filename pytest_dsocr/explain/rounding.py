"""Parts of a subject computed again on its own input: in float32, by the vendor's kernels, and under known mistakes.

A mistake that is smaller than rounding is still found: rounding has nothing to do with the mistake's effect, so that
its share in the difference from the vendor's kernels, over some hundred thousand values, is 0 without it and 1 with it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.base.words import count
from pytest_dsocr.compare.case import CaseReport, Explanation
from pytest_dsocr.compare.seams import known_effects
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.deadline import Deadline
from pytest_dsocr.explain.mistake import Changes, Mistake, Target, blocks_of, image_places, model_of
from pytest_dsocr.explain.mistake import StagePart as PartOfStage
from pytest_dsocr.explain.proof import Evidence
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.models import STAGE_NAMES, STAGES
from pytest_dsocr.models.spec import PIXELS, PREFILL
from pytest_dsocr.records.block_seams import BlockPass, watch_passes
from pytest_dsocr.records.config import Level, Setup
from pytest_dsocr.records.names import ComparisonKind, TensorName
from pytest_dsocr.records.subject_result import Effect, Rounding
from pytest_dsocr.subjects.checked import CheckedSubject

ROUNDINGS = ("float16", "tf32", "never-filled")
"""How the ids end of mistakes that round otherwise: in fewer bits than float32 they are no mistakes."""
FEWER_BITS = re.compile("float16|fp8|int8|int4|tf32")
"""In the ids of mistakes that are none where a budget pays for fewer bits."""
MAY_BE = (0.3, 3.0)
"""The share of its effect in a part that differs, of a mistake that is looked for in the others as well."""
OF_BLOCK: tuple[PartOfStage, ...] = ("block", "wide")
OF_ENDS: tuple[PartOfStage, ...] = ("front", "back")
LEAST_ROWS = 64
"""With fewer tokens each value counts as one."""


@dataclass(frozen=True, eq=False)
class ComputedPart:
    """What a subject gave in one place, and how an engine computes it from the same input."""

    stage: str
    name: str
    gave: Tensor
    given: tuple[Tensor, ...]
    """What the block, or the stage, got."""
    depth: int | None = None
    """Of a block; None of a whole stage."""
    image: tuple[int, int] = (0, 0)
    """The first position of the image in the prompt, and the first behind it."""

    def compute(self, engine: Engine[Any], change: Mistake | None = None, *, wide: bool = False) -> Tensor:
        """Return what ``engine`` gives, under a mistake or none; ``wide`` for its input in float32."""
        given = [one.float() if wide and one.is_floating_point() else one for one in self.given]
        with Changes() as changes, torch.no_grad():
            if change is not None:
                change.plant(self._target(engine, changes))
            if self.depth is None:
                return engine.pipeline.encode(self.stage, *given)
            with engine.pipeline.running(self.stage):
                block = blocks_of(engine, self.stage)[self.depth]
                out: Tensor = block(*given, *_of_prompt(engine, given[0])) if self.stage == PREFILL else block(*given)
                return out

    def _target(self, engine: Engine[Any], changes: Changes) -> Target:
        blocks = blocks_of(engine, self.stage)
        own = blocks if self.depth is None else [blocks[self.depth]]
        notes = {"all_blocks": blocks, "first": self.depth or 0, "stage": self.stage, "view": self.name}
        notes["prompt"] = self.given[0].shape[1]
        return Target(engine, changes, own, self.image, notes)


def _of_prompt(engine: Engine[Any], x_BTC: Tensor) -> tuple[Rope, Any]:
    cache = engine.model.new_cache()
    positions = cache.positions(x_BTC.shape[1], x_BTC.device)
    return Rope(model_of(engine).model.inv_freq, positions, x_BTC.dtype), cache


def parts_of(asked: CheckedSubject, inputs: Mapping[str, Tensor]) -> list[ComputedPart]:
    """Have a subject run vision and its prompt, and return every part of it that can be computed again.

    These are its stages for each view, and behind the blocks of a subject with named modules.
    """
    find = asked.subject.module if asked.level >= Level.MODULES else None
    with torch.no_grad(), watch_passes(find) if find else nullcontext(list[BlockPass]()) as passes:
        seams = asked.vision(inputs, partial=True)
        if find:
            asked.prefill(inputs, seams.get("vision_fusion"))
    image = image_places(inputs["images_seq_mask"])
    blocks = [ComputedPart(one.stage, one.name, one.gave, (one.given,), one.depth, image) for one in passes]
    return [*blocks, *_stages(seams, inputs)]


def _stages(seams: Mapping[str, Tensor], inputs: Mapping[str, Tensor]) -> Iterator[ComputedPart]:
    pixels = {"crops": inputs["images_crop"], "page": inputs["images_ori"]}
    for name, gave in seams.items():
        stage, view, _ = TensorName.parse(name)
        known = next((one for one in STAGES if one.name == stage and view), None)
        takes = known.takes if known else ()
        sources = [pixels[view] if one == PIXELS else seams.get(str(TensorName(one, view))) for one in takes]
        if sources and all(one is not None for one in sources):
            yield ComputedPart(stage, name, gave, tuple(one for one in sources if one is not None))


@dataclass(eq=False)
class Rounder:
    """Computes parts again; the engines are loaded when they are first needed, and kept.

    Args:
        setup: the subject's.
        budget_s: how long the known mistakes of one stage may be tried; with 0 none is.
        fewer_bits: whether the subject may compute in fewer bits than its dtype has.
    """

    setup: Setup
    budget_s: float
    fewer_bits: bool = False
    _candidates: dict[tuple[str, bool], list[Mistake]] = field(default_factory=dict)
    """The mistakes that may be in a stage's blocks, or in the stage, as far as they were tried."""
    _tried: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """By stage, how many were, and how many the time did not allow."""

    @cached_property
    def vendor(self) -> Engine[Any]:
        """The vendor's kernels in the subject's dtype."""
        return self._engine()

    @cached_property
    def truth(self) -> Engine[Any]:
        """The same weights, rounded to the subject's dtype, computed with in float32."""
        engine = self._engine()
        model_of(engine).float()
        engine.pipeline.autocast = False
        return engine

    def _engine(self) -> Engine[Any]:
        setup = self.setup
        return Engine.from_checkpoint(
            setup.checkpoint, device=setup.device, dtype=setup.dtype, attention=setup.attention, instrument="off"
        )

    def forget(self) -> None:
        """Try all known mistakes anew."""
        self._candidates.clear()
        self._tried.clear()

    def measure(self, parts: Sequence[ComputedPart]) -> dict[str, Rounding]:
        """Return how each stage rounds. All known mistakes are tried at the first page on which a stage differs."""
        with _exact_products():
            found = {stage: self._stage(stage, [one for one in parts if one.stage == stage]) for stage in STAGE_NAMES}
        return {stage: rounding for stage, rounding in found.items() if rounding}

    def _stage(self, stage: str, parts: Sequence[ComputedPart]) -> Rounding | None:
        """Return a stage's rounding; None where none of its parts can be computed."""
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
            self._tried[stage, False],
            self._tried[stage, True],
            self.fewer_bits,
        )

    def _by_vendor(self, part: ComputedPart) -> Tensor | None:
        """Return what the vendor's kernels give; None of a part that this model does not have, or of another shape."""
        try:
            vendor = part.compute(self.vendor)
        except torch.OutOfMemoryError:
            raise
        except (IndexError, RuntimeError):
            return None
        return vendor if vendor.shape == part.gave.shape else None

    def _difference(self, part: ComputedPart, vendor: Tensor) -> _Difference:
        truth = part.compute(self.truth, wide=True)
        return _Difference(part, _rows(part.gave), _rows(vendor), _rows(truth))

    def _effects(self, differing: Sequence[_Difference], kinds: Sequence[PartOfStage]) -> list[Effect]:
        """Return the effects that may be there, of every known mistake, or of those found so at a page before.

        Whether one may be is seen where the error is largest, and in the last part, as blocks are of several kinds.
        """
        from pytest_dsocr.explain.catalogue import groups  # which a run without a difference does not need

        known = groups(self.vendor.family)

        stage, place = differing[0].part.stage, (differing[0].part.stage, differing[0].part.depth is None)
        if place in self._candidates:
            return [self._share(one, differing) for one in self._candidates[place]]
        screen = {id(one): one for one in (max(differing, key=lambda one: one.ratio), differing[-1])}
        deadline, self._candidates[place] = Deadline(self.budget_s), []
        for one in known[stage].of(*kinds) if stage in known and self.budget_s else ():
            if one.id.endswith(ROUNDINGS) or (self.fewer_bits and FEWER_BITS.search(one.id)):
                continue
            is_late = deadline.is_over
            self._tried[stage, is_late] += 1
            if not is_late and any(MAY_BE[0] < self._share(one, [part]).share < MAY_BE[1] for part in screen.values()):
                self._candidates[place].append(one)
        return [self._share(one, differing) for one in self._candidates[place]]

    def _share(self, one: Mistake, differing: Sequence[_Difference]) -> Effect:
        """Return the share of a mistake's effect in these differences; 0 where it does nothing or cannot be planted."""
        products, squares, likelihood = [], [], 0.0
        for difference in differing:
            try:
                changed = _rows(difference.part.compute(self.truth, one, wide=True))
                effect = changed - difference.truth
            except Exception:  # a mistake may fit this checkpoint's sizes as little as a port's would
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
    """A part, what three computations of it give, and how they differ; rows are tokens, in float64."""

    def __init__(self, part: ComputedPart, actual: Tensor, vendor: Tensor, truth: Tensor) -> None:
        self.part, self.truth = part, truth
        self.apart = actual - vendor
        own, vendors = actual - truth, vendor - truth
        self.noise = vendors.pow(2).sum(1) + self.apart.pow(2).sum(1)
        """Of each token; one whose router chose another expert must not outweigh all others."""
        self.variance = (self.noise / actual.shape[1]).clamp_min(1e-60)
        self.differing = int((self.apart != 0).sum())
        self.ratio = float((own.norm(dim=1) / vendors.norm(dim=1).clamp_min(1e-30)).median())
        self.bias = min(_bias(self.apart), _bias(own))


def _bias(rows: Tensor) -> float:
    """Return the mean over channels of the squared mean over tokens, in squares of its standard error."""
    if len(rows) < LEAST_ROWS or rows.shape[1] == 1:
        return 0.0
    mean, variance = rows.mean(0), rows.var(0) / len(rows)
    moving = variance > 0
    return float((mean[moving] ** 2 / variance[moving]).mean()) if moving.any() else 0.0


def _rows(tensor: Tensor) -> Tensor:
    """Return a row for each token, or for each value of a tensor of few tokens; of features ``[N, C, h, w]`` too."""
    if tensor.ndim == 4 and tensor.shape[-1] == tensor.shape[-2]:
        tensor = tensor.movedim(1, -1)
    rows = tensor.double().reshape(-1, tensor.shape[-1])
    return rows if len(rows) >= LEAST_ROWS else rows.reshape(-1, 1)


def explained_by_rounding(report: CaseReport) -> Explanation | None:
    """Return what explains a case that first breaks at how a stage rounds; None of any other."""
    first = report.divergence.first if report.divergence else None
    if first is None or first.name.kind is not ComparisonKind.ROUNDING:
        return None
    found = report.exchange.answer.rounding[first.stage]
    if not (effects := known_effects(found)):
        tried = count(found.tried, "known mistake")
        return Explanation(f"by none of {tried} tried at {first.what}", first.what) if found.tried else None
    words = ", or ".join(one.words for one in effects)
    text = f"with {words}, the engine differs from the vendor's kernels as the subject does "
    text += f"({effects[0].share:.3f} of the effect, "
    evidence = Evidence(found.untried, len(effects), found.tried * math.erfc(effects[0].z / math.sqrt(2)))
    ids = tuple(one.id for one in effects)
    return Explanation(f"{text}z = {effects[0].z:.0f})", first.what, ids, evidence.is_proof)


@contextmanager
def _exact_products() -> Iterator[None]:
    """Have float32 products computed in float32 on a GPU, not in TF32."""
    backends: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [one.allow_tf32 for one in backends]
    try:
        for one in backends:
            one.allow_tf32 = False
        yield
    finally:
        for one, was in zip(backends, before, strict=True):
            one.allow_tf32 = was
