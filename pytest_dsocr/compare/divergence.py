"""First failure of a case in the order of the stages; later failures may follow from it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_dsocr.compare.verdict import Comparison, Verdict
from pytest_dsocr.records.names import TensorName

ROUNDING = 0.1
"""Relative error below which rounding or an epsilon may be the cause; structural mistakes are rarely so small."""
STARTED = 0.01
"""Share of a wrong seam's error from which the seam before it has the mistake already, not only rounding."""


@dataclass(frozen=True)
class FailureContext:
    """Comparisons of a case, and the place where it breaks."""

    first: Comparison
    """First wrong comparison, or the earlier one where its error begins."""
    found: Mapping[str, Comparison]

    @property
    def depth(self) -> int | None:
        """Index of the block or layer that broke, if known."""
        return self.first.tensor.block

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
        """Whether the whole page is right although the crops are wrong."""
        page = _of_page(self.first.tensor)
        if page == self.first.what or not self.right(page):
            return False
        return (self.found[page].error or 0.0) < STARTED * (self.first.error or math.inf)

    @property
    def blocks_right(self) -> bool:
        """Whether every block of the stage is right, and what comes of them is not."""
        tensors = ((what, one.tensor) for what, one in self.found.items())
        blocks = [what for what, tensor in tensors if tensor.whole == self.first.tensor != tensor]
        return bool(blocks) and self.right(*blocks)


def of_whole_page(what: str) -> str:
    """Return the name of the whole page's comparison that corresponds to ``what`` of the crops; otherwise ``what``."""
    return "images_ori" if what == "images_crop" else _of_page(TensorName.parse(what))


def _of_page(tensor: TensorName) -> str:
    return str(tensor._replace(view="page") if tensor.view == "crops" else tensor)


def is_cut(shapes: Mapping[str, str]) -> bool:
    """Return whether a page has crops, from its inputs' shapes: without crops they are zeros in float32."""
    return not shapes.get("images_crop", "float32").startswith("float32")


@dataclass(frozen=True)
class Divergence:
    """The first comparison that is WRONG."""

    first: Comparison
    right: int
    """Number of comparisons made before it, all of them right."""
    scene: FailureContext
    """Comparisons at the place where the error begins."""

    @property
    def begins(self) -> str:
        """Earlier comparison, inside its tolerance, where the error begins; empty if there is none."""
        return "" if self.scene.first is self.first else self.scene.first.what

    @property
    def preface(self) -> str:
        """Return the sentence that says where the error begins, to precede the advice on what to check."""
        if not self.begins:
            return ""
        error = self.scene.first.error
        return f"it begins at {self.begins} with a relative error of {error:.0e}, within the tolerance: "


def first_divergence(comparisons: Sequence[Comparison], ordinary: float = 0.0) -> Divergence | None:
    """Find the first WRONG comparison in the order of the stages; return None if nothing is WRONG.

    Correct implementations have a drift of up to ``ordinary``, so the error cannot begin at one that small.
    """
    for place, comparison in enumerate(comparisons):
        if comparison.verdict is Verdict.WRONG:
            origin = _origin(comparisons[: place + 1], ordinary)
            right = sum(one.verdict is not Verdict.NOT_COMPARED for one in comparisons[:place])
            return Divergence(comparison, right, FailureContext(origin, {one.what: one for one in comparisons}))
    return None


def _origin(comparisons: Sequence[Comparison], ordinary: float) -> Comparison:
    """Find where the error of the last comparison, the first WRONG one, starts: it grows from block to block."""
    wrong = comparisons[-1]
    if wrong.error is None or math.isinf(wrong.error):
        return wrong
    least = max(STARTED * wrong.error, ordinary)
    return next((one for one in comparisons if one.error is not None and one.error >= least), wrong)
