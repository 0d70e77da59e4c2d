"""When decoding stops, and what it may not repeat."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pytest_dsocr.foundation.errors import DsocrError


@dataclass(frozen=True)
class DecodePolicy:
    """Greedy decoding until EOS or the ceiling; nothing else stops it. The defaults are DeepSeek-OCR's ``infer``'s.

    Args:
        eos_id: the token that ends the output.
        no_repeat_ngram_size: length of n-grams that may not occur twice in prompt and output together; 0 for none.
        max_new_tokens: ceiling of the output's length.
    """

    eos_id: int
    no_repeat_ngram_size: int = 20
    max_new_tokens: int = 8192

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise DsocrError(f"max_new_tokens={self.max_new_tokens} leaves nothing to decode; give at least 1")
        if self.no_repeat_ngram_size < 0:
            raise DsocrError(f"no_repeat_ngram_size={self.no_repeat_ngram_size} is no length; give 0 to turn it off")

    def for_model(self, eos_id: int, max_position_embeddings: int | None) -> DecodePolicy:
        """Return this policy of a family for one model, whose ceiling is its limit of positions, if it has one."""
        return replace(self, eos_id=eos_id, max_new_tokens=max_position_embeddings or self.max_new_tokens)


class NgramBan:
    """Which tokens would repeat an n-gram of those pushed; the cost of a token does not grow with their number.

    Equal to transformers' ``NoRepeatNGramLogitsProcessor``.

    Args:
        size: tokens of the n-gram; 0 bans nothing.
        tokens: what is pushed to begin with, usually the prompt.
    """

    def __init__(self, size: int, tokens: Iterable[int] = ()) -> None:
        self._size = size
        self._last: deque[int] = deque(maxlen=max(size - 1, 0))
        self._followers: dict[tuple[int, ...], set[int]] = {}
        for token in tokens:
            self.push(token)

    def push(self, token: int) -> None:
        """Take one more token."""
        if len(self._last) == self._size - 1:
            self._followers.setdefault(tuple(self._last), set()).add(token)
        self._last.append(token)

    def banned(self) -> list[int]:
        """Return the tokens that may not come next, in ascending order."""
        return sorted(self._followers.get(tuple(self._last), ()))
