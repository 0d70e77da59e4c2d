"""Amount of work of a page: views, crops and tokens, from its size, preset and prompt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_dsocr.contract.presets import Grid, Preset, crop_count, image_token_count
from pytest_dsocr.contract.prompt import TextTokenizer, prompt_ids, split_at_images
from pytest_dsocr.models.spec import ModelSpec


@dataclass(frozen=True)
class Workload:
    """Size of an implementation's input and output, without their content."""

    page_px: tuple[int, int]
    """Width and height of the page."""
    preset: Preset
    text_tokens: int
    """Tokens of the prompt that are not the image's, BOS among them."""
    generated_tokens: int
    """Number of generated tokens, the first of which comes from the prefill."""
    dtype: str = "bfloat16"
    attention: str = "eager"
    """``eager``, ``sdpa`` or ``flash_attention_2``."""

    @classmethod
    def of_prompt(
        cls,
        page_px: tuple[int, int],
        prompt: str,
        preset: str | Preset,
        tokenizer: TextTokenizer,
        *,
        generated_tokens: int,
        family: ModelSpec,
        **more: Any,
    ) -> Workload:
        """Make the workload of one page and a prompt, as the inputs are made; ``more`` are the other fields.

        Raises:
            DsocrError: for a prompt that does not have one image, and for an unknown preset.
        """
        ids, _ = prompt_ids(split_at_images(family.prompts.get(prompt, prompt), 1), [0], tokenizer)
        return cls(page_px, family.preset(preset), len(ids), generated_tokens, **more)

    @property
    def grid(self) -> Grid:
        """Columns and rows of crops; ``(1, 1)`` if the page is not cut."""
        return self.preset.grid(*self.page_px)

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


def valid_image_tokens(work: Workload, family: ModelSpec) -> int:
    """Count the image tokens that show the page, as the vendor's ``test_compress`` does.

    Those of padding, of rows' ends and of the separator are left out; of sizes that it does not know it counts none.
    """
    counts, preset = family.vendor.page_tokens, work.preset
    longer, shorter = max(work.page_px), min(work.page_px)
    if preset.base_size in counts.of_page:
        page = int(counts.of_page[preset.base_size] * (1 - (longer - shorter) / longer))
    else:
        page = 0 if preset.crop else counts.of_squashed.get(preset.base_size, 0)
    has_crops = preset.crop and preset.image_size == preset.tiling.crop_px
    return page + counts.of_crop * crop_count(work.grid) * has_crops
