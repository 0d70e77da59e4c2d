"""How much work a page is: views, crops and tokens, from its size, preset and prompt."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_dsocr.contract.presets import Grid, Preset, crop_count, image_token_count
from pytest_dsocr.contract.prompt import TextTokenizer, prompt_ids, split_at_images
from pytest_dsocr.cost.cost import ITEM_BYTES
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.foundation.errors import DsocrError

TOKEN = re.compile(r"<\|[^|]*\|>|\w+|[^\w ]")
"""A special token, a word, a mark or a line break."""
OF_VIEW: Mapping[int, int] = {1024: 256, 1280: 400}
"""Tokens of a whole page, by ``base_size``, of which the part counts that is not padding."""
OF_SQUASHED_VIEW: Mapping[int, int] = {640: 100, 512: 64}
"""The same where a page is squashed into its view, which has no padding; pages with crops have none."""
OF_CROP = 100


@dataclass(frozen=True)
class Workload:
    """What one implementation is given, and how much it writes; sizes alone, no content."""

    page_px: tuple[int, int]
    """Width and height of the page."""
    preset: Preset
    text_tokens: int
    """Tokens of the prompt that are not the image's, BOS among them."""
    generated_tokens: int
    """Tokens that are written, the first of which comes from the prefill."""
    dtype: str = "bfloat16"
    attention: str = "eager"
    """``eager``, ``sdpa`` or ``flash_attention_2``."""

    def __post_init__(self) -> None:
        for name, value, least in (
            *(("page_px", side, 1) for side in self.page_px),
            ("text_tokens", self.text_tokens, 0),
            ("generated_tokens", self.generated_tokens, 0),
        ):
            if value < least:
                raise DsocrError(f"a workload has {name}={value}; give {least} or more")
        if self.dtype not in ITEM_BYTES:
            raise DsocrError(f"a workload has dtype={self.dtype!r}; give one of {', '.join(ITEM_BYTES)}")

    @classmethod
    def of_prompt(
        cls,
        page_px: tuple[int, int],
        prompt: str,
        preset: str | Preset,
        tokenizer: TextTokenizer,
        *,
        generated_tokens: int,
        **more: Any,
    ) -> Workload:
        """Make the workload of one page and a prompt, as the inputs are made; ``more`` are the other fields.

        Raises:
            DsocrError: for a prompt that does not have one image, and for an unknown preset.
        """
        ids, _ = prompt_ids(split_at_images(DEFAULT.prompts.get(prompt, prompt), 1), [0], tokenizer)
        own = preset if isinstance(preset, Preset) else DEFAULT.preset(preset)
        return cls(page_px, own, len(ids), generated_tokens, **more)

    @property
    def grid(self) -> Grid:
        """Columns and rows of crops; ``(1, 1)`` where the page is not cut."""
        return self.preset.grid(*self.page_px)

    @property
    def views_px(self) -> tuple[int, ...]:
        """Sides of the square views in pixels: the crops, then the whole page."""
        return (self.preset.tiling.crop_px,) * crop_count(self.grid) + (self.preset.view_size,)

    @property
    def image_tokens(self) -> int:
        """Tokens of the prompt that are the image's."""
        return image_token_count(self.preset, self.grid)

    @property
    def prompt_tokens(self) -> int:
        """Tokens that the prefill takes."""
        return self.text_tokens + self.image_tokens

    @property
    def decode_steps(self) -> int:
        """Steps of one token each after the prefill."""
        return max(self.generated_tokens - 1, 0)


def text_tokens(prompt: str) -> int:
    """Count the words and marks of a prompt for one page, and BOS: right where a vocabulary has each of its words.

    Raises:
        DsocrError: where the prompt is empty, or has not one ``<image>``.
    """
    return 1 + sum(len(TOKEN.findall(piece)) for piece in split_at_images(DEFAULT.prompts.get(prompt, prompt), 1))


def valid_image_tokens(work: Workload) -> int:
    """Count the image tokens that show the page, as the vendor's ``test_compress`` does.

    Those of padding, of rows' ends and of the separator are left out; of sizes that it does not know it counts none.
    """
    return _of_view(work) + _of_crops(work)


def _of_view(work: Workload) -> int:
    base, longer, shorter = work.preset.base_size, max(work.page_px), min(work.page_px)
    if base in OF_VIEW:
        return int(OF_VIEW[base] * (1 - (longer - shorter) / longer))
    return 0 if work.preset.crop else OF_SQUASHED_VIEW.get(base, 0)


def _of_crops(work: Workload) -> int:
    """Count the crops, which are filled; of another ``image_size`` the vendor counts none."""
    is_shown = work.preset.crop and work.preset.image_size == work.preset.tiling.crop_px
    return OF_CROP * crop_count(work.grid) * is_shown
