"""Steps that lead to a text which a subject read in another way: in a batch, after another page, or in one call.

Two ways of a computation round differently, and a tie may fall either way. So a text is right if the subject's own
steps lead to it, where each token is the best or ties with the best.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_dsocr.compare.tolerances import Tolerances
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.subjects.checked import CheckedSubject

MOST_PATHS = 8
"""Number of paths that are tried if tokens that tie spell the same beginning of a text."""
MOST_TIED = 16
"""Number of best tokens that are looked at in each step."""
PART_OF_CHARACTER = "\ufffd"
"""Decoded bytes that are not yet a whole character."""


@dataclass(frozen=True)
class Tied:
    """A step whose token is not the best, and ties with it."""

    step: int
    gap: float
    """Distance from the best token's logit, in units in the last place of that logit."""


@dataclass(frozen=True)
class Retraced:
    """The longest way along a text by a subject's own steps."""

    tokens: tuple[int, ...]
    ties: tuple[Tied, ...]
    is_whole: bool
    """Whether the steps lead to the end of the text, and end there."""

    @property
    def words(self) -> str:
        """Result in words."""
        if not self.is_whole:
            return f"no token that ties with the best leads to it from step {len(self.tokens)} on"
        gaps = ", ".join(f"step {one.step} ({one.gap:.0f} ULP)" for one in self.ties)
        return f"the subject's own steps lead to it; ties at {gaps}" if gaps else "the subject's own steps lead to it"


@dataclass(frozen=True)
class Retracer:
    """Steps of a subject along a text.

    Args:
        asked: a subject with stages.
        inputs: the page's.
        features: the page's, ``vision_fusion``.
        policy: rule by which tokens are chosen, and the most tokens of the output.
        tokenizer: the checkpoint's.
        limits: for two computations of the subject; ``ties`` is used.
    """

    asked: CheckedSubject
    inputs: Mapping[str, Tensor]
    features: Tensor | None
    policy: DecodePolicy
    tokenizer: TextTokenizer
    limits: Tolerances

    def along(self, text: str) -> Retraced:
        """Follow ``text`` to its end, or to the first step that does not lead on."""
        waiting: list[tuple[tuple[int, ...], tuple[Tied, ...]]] = [((), ())]
        longest = Retraced((), (), is_whole=False)
        for _ in range(MOST_PATHS):
            if longest.is_whole or not waiting:
                break
            start, ties = waiting.pop()
            found = self._path(text, start, ties, waiting)
            longest = found if found.is_whole or len(found.tokens) > len(longest.tokens) else longest
        return longest

    def _path(
        self,
        text: str,
        start: tuple[int, ...],
        tied: tuple[Tied, ...],
        waiting: list[tuple[tuple[int, ...], tuple[Tied, ...]]],
    ) -> Retraced:
        """Follow ``text`` after the tokens ``start``; put other tokens that lead on into ``waiting``."""
        prompt: list[int] = self.inputs["input_ids"][0].tolist()
        limit, ban = self.policy.room(len(prompt)), self.policy.ban((*prompt, *start))
        tokens, ties = [*start], [*tied]
        state, logits = self.asked.prefill(self.inputs, self.features)
        for token in start:
            logits = self.asked.step(state, token)
        while len(tokens) < limit:
            leading = [
                (token, gap)
                for token, gap in self._best(logits, ban.banned())
                if self._leads_on([*tokens, token], text, limit)
            ]
            if not leading:
                break
            step = len(tokens)
            for token, gap in reversed(leading[1:]):
                waiting.append(((*tokens, token), (*ties, Tied(step, gap))))
            token, gap = leading[0]
            ties += [Tied(step, gap)] if gap else []
            tokens.append(token)
            if token == self.policy.eos_id or len(tokens) == limit:
                return Retraced(tuple(tokens), tuple(ties), is_whole=True)
            ban.push(token)
            logits = self.asked.step(state, token)
        return Retraced(tuple(tokens), tuple(ties), is_whole=False)

    def _best(self, logits: Tensor, banned: list[int]) -> Iterator[tuple[int, float]]:
        """Yield the tokens that tie with the best one, the best one first, and their distance from it in ULP."""
        allowed = logits.clone()
        allowed[banned] = -torch.inf
        best, ids = (found.tolist() for found in allowed.topk(min(MOST_TIED, len(allowed))))
        for logit, token in zip(best, ids, strict=True):
            gap = (best[0] - logit) / self.limits.ulp(best[0])
            if gap <= self.limits.ties:
                yield token, gap

    def _leads_on(self, tokens: list[int], text: str, limit: int) -> bool:
        """Return whether ``tokens`` spell a beginning of ``text``, or all of it if they end the output."""
        spelt = self.tokenizer.decode(tokens)
        if tokens[-1] == self.policy.eos_id or len(tokens) == limit:
            return clean_output(spelt) == text
        begun = spelt.lstrip().rstrip(PART_OF_CHARACTER)
        return text.startswith(begun) or text == begun.rstrip()
