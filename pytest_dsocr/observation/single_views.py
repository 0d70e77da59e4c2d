"""Views that a model encodes one by one: which passes through a block were crops, and which was the page.

The vendor encodes all crops in one pass. A model that takes one view at a time gives the same numbers; what its crops
gave is laid side by side, in their order, so that it can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from pytest_dsocr.foundation.errors import DsocrError

Block = tuple[str, int]
"""A stage, and the depth of one of its blocks."""


class SingleViews:
    """Passes of one view each, through the blocks of SAM and CLIP.

    Crops are of one shape and at least two; the page is of another, and one. Where all passes are of one shape, the
    first is the page, and what was run again is left out.
    """

    def __init__(self) -> None:
        self._passes: dict[Block, dict[tuple[int, ...], list[Tensor]]] = {}

    def keep(self, block: Block, module: str, out: Tensor) -> None:
        """Take a pass of one view, ``[1, ...]``; it is copied.

        Raises:
            DsocrError: where the passes so far cannot be those of crops and a page.
        """
        groups = self._passes.setdefault(block, {})
        groups.setdefault(tuple(out.shape), []).append(out.clone())
        if len(groups) > 2 or (len(groups) == 2 and min(map(len, groups.values())) > 1):
            told = " and ".join(f"{len(passes)} times {list(shape)}" for shape, passes in groups.items())
            raise DsocrError(
                f"{module} gave {told}, so {block[0]} cannot be compared; have it run once on all crops or on each, "
                "once on the page and once on the prompt, or do not offer modules"
            )

    def views(self) -> Iterator[tuple[Block, str, Tensor]]:
        """Yield each block's ``crops`` ``[P, ...]``, where there are some, and its ``page`` ``[1, ...]``."""
        for block, groups in self._passes.items():
            first, *others = groups.values()
            page, *crops = sorted((first, *others), key=len) if others else (first,)
            yield block, "page", page[0]
            if crops and len(crops[0]) > 1:
                yield block, "crops", torch.cat(crops[0])
