"""A case that went wrong, as it tells causes apart: what is wrong first, how it differs, what is right beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.compare.verdict import Comparison, Verdict

ROUNDING = 0.1
"""An error below it may be one of rounding, or of an epsilon; a mistake of structure is hardly ever so small."""
BEGUN = 0.01
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
    def misshapen(self) -> bool:
        """Whether a tensor has another shape or dtype."""
        return self.has(Sign.OTHER_SHAPE)

    @property
    def small(self) -> bool:
        """Whether a seam's error is as small as one of rounding, which all blocks have, the first as well."""
        return self.first.error is not None and self.first.error < ROUNDING and not self.depth

    def has(self, sign: Sign, what: str | None = None) -> bool:
        """Say whether the first wrong comparison, or ``what``, has this sign."""
        looked_at = self.first if what is None else self.found.get(what)
        return looked_at is not None and sign in looked_at.signs

    def right(self, *names: str) -> bool:
        """Say whether all of them were compared and are right."""
        return all(name in self.found and self.found[name].verdict in (Verdict.MATCH, Verdict.DRIFT) for name in names)

    def wrong(self, *names: str) -> bool:
        """Say whether all of them are wrong."""
        return all(name in self.found and self.found[name].verdict is Verdict.WRONG for name in names)

    @property
    def crops_alone(self) -> bool:
        """Whether the whole page is right where the crops are wrong."""
        page = self.first.what.replace(".crops", ".page")
        if page == self.first.what or not self.right(page):
            return False
        return (self.found[page].error or 0.0) < BEGUN * (self.first.error or math.inf)

    @property
    def blocks_right(self) -> bool:
        """Whether every block of the stage is right, and what comes of them is not."""
        blocks = [name for name in self.found if name.startswith(f"{self.first.what}/")]
        return bool(blocks) and self.right(*blocks)


def always(scene: Scene) -> bool:
    """Fit whatever the scene is."""
    return True


@dataclass(frozen=True)
class Symptom:
    """A first divergence as it shows, and its usual causes."""

    at: str
    """The stage of the first wrong comparison, see :attr:`Comparison.stage`."""
    cause: str
    """What to check; ``{depth}`` is the number of the block that broke."""
    shows: Callable[[Scene], bool] = always
    """Whether the scene looks like it."""
    bugs: tuple[str, ...] = ()
    """The mistakes of real ports that show so, by the project's numbers for them."""
