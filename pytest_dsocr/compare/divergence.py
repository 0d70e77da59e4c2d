"""Where a case first breaks, in the order of the stages: what is wrong later may follow from the first."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_dsocr.compare.verdict import Comparison, Verdict

ROUNDING = 0.1
"""An error below it may be one of rounding, or of an epsilon; a mistake of structure is hardly ever so small."""
STARTED = 0.01
"""What error a seam has in front of a wrong one, as a share of it, where the mistake is in it already, not rounding."""


@dataclass(frozen=True)
class Scene:
    """A case as it was found, and where it breaks."""

    first: Comparison
    """The first comparison that is wrong, or the one in front of it that its error begins at."""
    found: Mapping[str, Comparison]

    @property
    def depth(self) -> int | None:
        """Which block or layer broke, where that is known."""
        depth = self.first.what.partition("/")[2]
        return int(depth) if depth.isdecimal() else None

    @property
    def small(self) -> bool:
        """Whether a seam's error is as small as one of rounding, which all blocks have, the first as well."""
        return self.first.error is not None and self.first.error < ROUNDING and not self.depth

    def right(self, *names: str) -> bool:
        """Return whether all of them were compared and are right."""
        return all(name in self.found and self.found[name].verdict in (Verdict.MATCH, Verdict.DRIFT) for name in names)

    def wrong(self, *names: str) -> bool:
        """Return whether all of them are wrong."""
        return all(name in self.found and self.found[name].verdict is Verdict.WRONG for name in names)

    @property
    def crops_alone(self) -> bool:
        """Whether the whole page is right where the crops are wrong."""
        page = self.first.what.replace(".crops", ".page")
        if page == self.first.what or not self.right(page):
            return False
        return (self.found[page].error or 0.0) < STARTED * (self.first.error or math.inf)

    @property
    def blocks_right(self) -> bool:
        """Whether every block of the stage is right, and what comes of them is not."""
        blocks = [name for name in self.found if name.startswith(f"{self.first.what}/")]
        return bool(blocks) and self.right(*blocks)


def of_whole_page(what: str) -> str:
    """Give the comparison of the whole page that stands beside ``what`` of the crops; else ``what``."""
    return "images_ori" if what == "images_crop" else what.replace(".crops", ".page")


def is_cut(shapes: Mapping[str, str]) -> bool:
    """Return whether a page has crops, by its inputs' shapes: where it has none, they are zeros in float32."""
    return not shapes.get("images_crop", "float32").startswith("float32")


@dataclass(frozen=True)
class Divergence:
    """The first comparison that is WRONG."""

    first: Comparison
    right: int
    """How many comparisons before it were made, all of them right."""
    scene: Scene
    """What is seen where its error begins."""

    @property
    def begins(self) -> str:
        """The comparison in front of it, inside its tolerance, that its error begins at; empty where there is none."""
        return "" if self.scene.first is self.first else self.scene.first.what

    @property
    def preface(self) -> str:
        """Say where the error begins, in front of what to check there."""
        if not self.begins:
            return ""
        error = self.scene.first.error
        return f"it begins at {self.begins} with a relative error of {error:.0e}, within the tolerance: "


def first_divergence(comparisons: Sequence[Comparison], ordinary: float = 0.0) -> Divergence | None:
    """Find the first WRONG comparison, in the order of the stages; None where nothing is WRONG.

    A drift of no more than ``ordinary``, as correct implementations have, is not where its error begins.
    """
    for place, comparison in enumerate(comparisons):
        if comparison.verdict is Verdict.WRONG:
            origin = _origin(comparisons[: place + 1], ordinary)
            right = sum(one.verdict is not Verdict.NOT_COMPARED for one in comparisons[:place])
            return Divergence(comparison, right, Scene(origin, {one.what: one for one in comparisons}))
    return None


def _origin(comparisons: Sequence[Comparison], ordinary: float) -> Comparison:
    """Find where the error of the last one, the first that is WRONG, begins: from block to block it grows."""
    wrong = comparisons[-1]
    if wrong.error is None or math.isinf(wrong.error):
        return wrong
    least = max(STARTED * wrong.error, ordinary)
    return next((one for one in comparisons if one.error is not None and one.error >= least), wrong)
