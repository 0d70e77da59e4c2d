"""Sizes of a page by which the pages that fail may differ from those that pass."""

from msgspec import Struct


class PageMeasures(Struct, frozen=True):
    """Sizes of one page in one preset, as the reference reads it."""

    width_px: int
    height_px: int
    crops: int
    """0 if the page is not cut."""
    prompt_tokens: int
    new_tokens: int
    """Generated tokens, EOS among them."""

    @property
    def positions(self) -> int:
        """Number of tokens of the prompt and after it."""
        return self.prompt_tokens + self.new_tokens
