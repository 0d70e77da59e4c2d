"""The figures of the vendor's ``test_compress``: how much text a page's image tokens stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pytest_dsocr.contract.presets import CROP_PX, crop_count
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.foundation.errors import DsocrError

OF_VIEW: Mapping[int, int] = {1024: 256, 1280: 400}
"""Tokens of a whole page, by ``base_size``, of which the part counts that is not padding."""
OF_SQUASHED_VIEW: Mapping[int, int] = {640: 100, 512: 64}
"""The same where a page is squashed into its view, which has no padding; not told of pages with crops."""
OF_CROP = 100


@dataclass(frozen=True)
class Compression:
    """What is told of one page."""

    valid_image_tokens: int
    """Image tokens that show the page; those of padding, of rows' ends and of the separator are not counted."""
    text_tokens: int
    """Tokens of the output, made to text and read again."""

    @property
    def ratio(self) -> float:
        """Text tokens for each image token, to two places.

        Raises:
            DsocrError: where no image token is counted, and the vendor's code divides by zero.
        """
        if not self.valid_image_tokens:
            raise DsocrError(
                "the vendor counts no valid image tokens for these sizes, so there is no ratio; "
                f"give a base_size of {', '.join(map(str, (*OF_VIEW, *OF_SQUASHED_VIEW)))}"
            )
        return round(self.text_tokens / self.valid_image_tokens, 2)


def compression(work: Workload, text_tokens_written: int) -> Compression:
    """Give the figures of a page that was read as so many tokens of text."""
    return Compression(_of_view(work) + _of_crops(work), text_tokens_written)


def _of_view(work: Workload) -> int:
    base, longer, shorter = work.preset.base_size, max(work.page_px), min(work.page_px)
    if base in OF_VIEW:
        return int(OF_VIEW[base] * (1 - (longer - shorter) / longer))
    return 0 if work.preset.crop else OF_SQUASHED_VIEW.get(base, 0)


def _of_crops(work: Workload) -> int:
    """Count the crops, which are filled; of another ``image_size`` the vendor counts none."""
    return OF_CROP * crop_count(work.grid) if work.preset.crop and work.preset.image_size == CROP_PX else 0
