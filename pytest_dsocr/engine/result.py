"""The result of reading one page."""

from dataclasses import dataclass
from typing import Literal

from pytest_dsocr.contract.markup import Markup, Span
from pytest_dsocr.engine.stages import StageTime

FinishReason = Literal["eos", "length"]


@dataclass(frozen=True)
class Counts:
    """Numbers of tokens, views and steps of one page."""

    prompt_tokens: int
    image_tokens: int
    output_tokens: int
    views: int
    """Views encoded: the crops and the whole page."""
    decode_steps: int


@dataclass(frozen=True)
class PageResult:
    """The text of one page, what was read in it, and what it took."""

    text: str
    """Decoded with its markup, without the EOS and the spaces around."""
    token_ids: tuple[int, ...]
    """Generated tokens, the EOS included."""
    markup: Markup
    counts: Counts
    finish_reason: FinishReason
    stage_times: dict[str, StageTime]
    """Times of all that the engine did since its previous result; empty unless its instrument is ``timed``."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """The entry spans in the text's order."""
        return self.markup.spans
