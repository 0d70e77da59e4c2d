"""When decoding stops, and what it may not repeat."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from pytest_dsocr.base.errors import DsocrError


@dataclass(frozen=True)
class DecodePolicy:
    """Greedy decoding until EOS or the limit of tokens; nothing else stops it.

    Args:
        eos_id: the token that ends the output.
        no_repeat_ngram_size: length of n-grams that may not occur twice in prompt and output together; 0 for none.
        max_new_tokens: limit of the output's length.
        ngram_window: tokens at the end of prompt and output in which an n-gram may not occur twice; None for all.
        max_length: limit of prompt and output together; None for none.
    """

    eos_id: int
    no_repeat_ngram_size: int
    max_new_tokens: int
    ngram_window: int | None = None
    max_length: int | None = None

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise DsocrError(f"max_new_tokens={self.max_new_tokens} leaves nothing to decode; give at least 1")
        if self.no_repeat_ngram_size < 0:
            raise DsocrError(f"no_repeat_ngram_size={self.no_repeat_ngram_size} is no length; give 0 to turn it off")

    def for_model(self, eos_id: int, max_position_embeddings: int | None) -> DecodePolicy:
        """Return this policy of a family for one model, whose ceiling is its limit of positions, if it has one."""
        limited = "max_new_tokens" if self.max_length is None else "max_length"
        return replace(self, eos_id=eos_id, **{limited: max_position_embeddings or getattr(self, limited)})

    def room(self, prompt_tokens: int) -> int:
        """Return how many tokens may follow a prompt; raise ``DsocrError`` if none may."""
        if self.max_length is None:
            return self.max_new_tokens
        if prompt_tokens >= self.max_length:
            raise DsocrError(
                f"a prompt of {prompt_tokens} tokens leaves none of {self.max_length}; give a smaller page"
            )
        return min(self.max_new_tokens, self.max_length - prompt_tokens)

    def ban(self, tokens: Iterable[int]) -> NgramBan:
        """Return the policy's n-gram rule after ``tokens``."""
        return NgramBan(self.no_repeat_ngram_size, tokens, self.ngram_window)


class NgramBan:
    """Set of tokens that would repeat an n-gram of those pushed; the cost of a token does not grow with their number.

    Equal to transformers' ``NoRepeatNGramLogitsProcessor``, and with a window to Unlimited-OCR's own processor.

    Args:
        size: tokens of the n-gram; 0 bans nothing.
        tokens: the tokens pushed first, usually the prompt.
        window: the number of last tokens that are searched for the n-gram; None for all.
    """

    def __init__(self, size: int, tokens: Iterable[int] = (), window: int | None = None) -> None:
        self._size, self._window, self._pushed = size, window, 0
        self._last: deque[int] = deque(maxlen=max(size - 1, 0))
        self._followers: dict[tuple[int, ...], dict[int, int]] = {}
        """Followers of the first tokens of an n-gram, each with the place where the n-gram last started."""
        for token in tokens:
            self.push(token)

    def push(self, token: int) -> None:
        """Take one more token."""
        self._pushed += 1
        if len(self._last) == self._size - 1:
            self._followers.setdefault(tuple(self._last), {})[token] = self._pushed - self._size
        self._last.append(token)

    def banned(self) -> list[int]:
        """Return the tokens that may not come next, in ascending order."""
        window = self._pushed if self._window is None else self._window
        return sorted(token for token, back in self.distances().items() if back <= window)

    def distances(self) -> dict[int, int]:
        """Return the tokens that would repeat an n-gram, and how many tokens ago it last started."""
        return {token: self._pushed - at for token, at in self._followers.get(tuple(self._last), {}).items()}


@dataclass(frozen=True)
class CachePolicy:
    """Rule that decides which keys and values a decode step sees."""

    ring: int | None = None
    """Number of generated tokens that are kept in addition to the prompt; None keeps all."""

    def length(self, prompt: int, generated: int) -> int:
        """Count the positions in the cache after a prompt and ``generated`` tokens."""
        return prompt + (generated if self.ring is None else min(generated, self.ring))

    def slot(self, prompt: int, generated: int) -> int:
        """Return where in the cache the next token goes after a prompt and ``generated`` tokens."""
        return prompt + (generated if self.ring is None or generated < self.ring else generated % self.ring)
