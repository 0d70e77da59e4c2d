"""How much work a page is: views, crops and tokens, from its size, preset and prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_dsocr.contract.presets import CROP_PX, Grid, Preset, crop_count, crop_grid, get_preset, image_token_count
from pytest_dsocr.contract.prompt import TextTokenizer, prompt_ids, split_at_images
from pytest_dsocr.cost.operations import ITEM_BYTES
from pytest_dsocr.foundation.errors import DsocrError


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
    batch: int = 1
    """Pages of this size that are read together."""
    dtype: str = "bfloat16"
    attention: str = "eager"
    """``eager``, ``sdpa`` or ``flash_attention_2``."""

    def __post_init__(self) -> None:
        for name, value, least in (
            *(("page_px", side, 1) for side in self.page_px),
            ("batch", self.batch, 1),
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
        ids, _ = prompt_ids(split_at_images(prompt, 1), [0], tokenizer)
        return cls(page_px, get_preset(preset), len(ids), generated_tokens, **more)

    @property
    def grid(self) -> Grid:
        """Columns and rows of crops; ``(1, 1)`` where the page is not cut."""
        return crop_grid(*self.page_px) if self.preset.crop else (1, 1)

    @property
    def views_px(self) -> tuple[int, ...]:
        """Sides of the square views in pixels: the crops, then the whole page."""
        return (CROP_PX,) * crop_count(self.grid) + (self.preset.view_size,)

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
