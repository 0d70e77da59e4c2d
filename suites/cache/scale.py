"""Size of rounding in the vendor's arithmetic, measured in the run itself: on its page, device and dtype.

In bf16 and fp16 no two ways of one computation give the same bits: a prompt in one call or token by token, a page alone
or in a batch. The engine computes the run's first page with the vendor's kernels in the subject's dtype, by both ways,
and in float32. Its errors are the unit in which the subject's ways are judged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.models.spec import ModelSpec

from .walk import Walk, apart, cache_apart

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.engine.engine import Engine
    from pytest_dsocr.explain.rounding import Rounder
    from pytest_dsocr.subjects.kv_probe import CacheKind


@dataclass(frozen=True, eq=False)
class RoundingScale:
    """Errors of the vendor's arithmetic, each computed when it is first needed.

    Args:
        rounder: holds the engine in the subject's dtype, and the one in float32.
        page: the run's first page.
        family: the checkpoint's model.
    """

    rounder: Rounder
    page: Path
    family: ModelSpec

    @cached_property
    def logits(self) -> float:
        """Largest relative error of the logits after a step."""
        stepped, at_once, exact = self._logits
        pairs = (*zip(stepped, exact, strict=True), *zip(stepped, at_once, strict=True))
        return max(apart(one, other) for one, other in pairs)

    @cached_property
    def ulp(self) -> float:
        """Largest error of a logit, in units in the last place of the best logit."""
        from pytest_dsocr.compare.tolerances import tolerances

        limits = tolerances(self.rounder.setup.dtype)
        stepped, _, exact = self._logits
        pairs = zip(stepped, exact, strict=True)
        return max(float((one - other).abs().max()) / limits.ulp(float(other.max())) for one, other in pairs)

    def vision(self, seam: str) -> float:
        """Return the relative error of a seam of the page, such as ``sam.page`` or ``vision_fusion``."""
        one, other = (walk.subject.vision(walk.copies()) for walk in (self._vendor, self._exact))
        return apart(one[seam], other[seam])

    def cache(self, kind: CacheKind, layer: int) -> float:
        """Return the relative error of a layer's keys or values; no less than that of any layer before it."""
        errors = self._cache[kind]
        return errors[min(layer, len(errors) - 1)]

    @cached_property
    def _cache(self) -> dict[CacheKind, list[float]]:
        from pytest_dsocr.subjects.kv_probe import KINDS

        stepped, at_once, exact = self._states
        return {
            kind: [
                *accumulate(
                    (
                        max(cache_apart(stepped, other, kind, layer, 0) for other in (at_once, exact))
                        for layer in range(exact.cache.layers)
                    ),
                    max,
                )
            ]
            for kind in KINDS
        }

    @cached_property
    def _logits(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Logits of the steps in the subject's dtype, of one call for each step, and of the steps in float32."""
        vendor, exact = self._vendor, self._exact
        at_once = [vendor.start(vendor.first[:count])[1] for count in range(1, len(vendor.first) + 1)]
        return vendor.steps(vendor.start()[0], vendor.first), at_once, exact.steps(exact.start()[0], exact.first)

    @cached_property
    def _states(self) -> tuple[Any, Any, Any]:
        stepped, exact = self._vendor.start()[0], self._exact.start()[0]
        self._vendor.steps(stepped, self._vendor.first)
        self._exact.steps(exact, self._exact.first)
        return stepped, self._vendor.start(self._vendor.first)[0], exact

    @cached_property
    def _vendor(self) -> Walk:
        return Walk.along(_subject(self.rounder.vendor), self.page, family=self.family)

    @cached_property
    def _exact(self) -> Walk:
        """Walk in float32 along the same tokens, from the same features."""
        from pytest_dsocr.subjects.checked import CheckedSubject

        exact = CheckedSubject(_subject(self.rounder.truth))
        return replace(self._vendor, subject=exact, features=self._vendor.features.float())


def _subject(engine: Engine[Any]) -> Any:
    from pytest_dsocr.subjects.engine import EngineSubject

    return EngineSubject(engine)
