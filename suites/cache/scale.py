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
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pytest_dsocr.models.spec import ModelSpec

from .walk import Walk, apart, cache_apart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from pytest_dsocr.engine.engine import Engine
    from pytest_dsocr.explain.rounding import Rounder
    from pytest_dsocr.subjects.kv_probe import CacheKind
    from pytest_dsocr.subjects.protocol import DecodeView


class Taken(NamedTuple):
    """Logits after each of a walk's first tokens, and the state after the last."""

    state: DecodeView
    logits: Sequence[Tensor]

    @classmethod
    def stepped(cls, walk: Walk) -> Self:
        """Take the tokens one by one."""
        state, _ = walk.start()
        return cls(state, walk.steps(state, walk.first))


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
        stepped, exact = self._stepped.logits, self._exactly.logits
        pairs = (*zip(stepped, exact, strict=True), *zip(stepped, self._at_once.logits, strict=True))
        return max(apart(one, other) for one, other in pairs)

    @cached_property
    def ulp(self) -> float:
        """Largest error of a logit, in units in the last place of the best logit."""
        from pytest_dsocr.compare.tolerances import tolerances

        limits = tolerances(self.rounder.setup.dtype)
        pairs = zip(self._stepped.logits, self._exactly.logits, strict=True)
        return max(float((one - other).abs().max()) / limits.ulp(float(other.max())) for one, other in pairs)

    def vision(self, seam: str) -> float:
        """Return the relative error of a seam of the page, such as ``sam.page`` or ``vision_fusion``."""
        one, other = self._seams
        return apart(one[seam], other[seam])

    def cache(self, kind: CacheKind, layer: int) -> float:
        """Return the relative error of a layer's keys or values; no less than that of any layer before it."""
        errors = self._cache[kind]
        return errors[min(layer, len(errors) - 1)]

    @cached_property
    def _cache(self) -> dict[CacheKind, list[float]]:
        from pytest_dsocr.subjects.kv_probe import KINDS

        stepped, others = self._stepped.state, (self._at_once.state, self._exactly.state)
        return {
            kind: [
                *accumulate(
                    (
                        max(cache_apart(stepped, other, kind, layer, 0) for other in others)
                        for layer in range(stepped.cache.layers)
                    ),
                    max,
                )
            ]
            for kind in KINDS
        }

    @cached_property
    def _seams(self) -> tuple[Mapping[str, Tensor], Mapping[str, Tensor]]:
        """Seams of the page in the subject's dtype and in float32."""
        vendor, exact = (walk.subject.vision(walk.copies()) for walk in (self._vendor, self._exact))
        return vendor, exact

    @cached_property
    def _stepped(self) -> Taken:
        return Taken.stepped(self._vendor)

    @cached_property
    def _exactly(self) -> Taken:
        return Taken.stepped(self._exact)

    @cached_property
    def _at_once(self) -> Taken:
        """Each step's logits from a call of its own; the state of the last one."""
        walk = self._vendor
        starts = [walk.start(walk.first[:count]) for count in range(1, len(walk.first) + 1)]
        return Taken(starts[-1][0], [logits for _, logits in starts])

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
