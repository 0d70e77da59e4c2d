"""Steps that lead to a text which a subject read in another way: in a batch, after another page, or in one call.

Two ways of a computation round differently, and a tie may fall either way. So a text is right if the subject's own
steps lead to it, where each token is the best or ties with the best.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

import torch
from torch import Tensor

from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.prompt import TextTokenizer
from pytest_dsocr.records.case import Case
from pytest_dsocr.subjects.checked import CheckedSubject

MOST_PATHS = 16
"""Number of paths that are tried if tokens that tie spell the same beginning of a text."""
UNSEEN = 2
"""Factor of a tie's limit: both ways may err by it, and only the steps' logits are seen, not those of the reading."""
MOST_TIED = 16
"""Number of best tokens that are looked at in each step."""
PART_OF_CHARACTER = "\ufffd"
"""Decoded bytes that are not yet a whole character."""


class TieLimits(Protocol):
    """Limits within which two tokens tie; :class:`~pytest_dsocr.compare.tolerances.Tolerances` has them."""

    @property
    def ties(self) -> int:
        """Largest distance of two logits, in units in the last place of the best one."""

    def ulp(self, logit: float) -> float:
        """Return the distance from a logit to the next number of its dtype."""


@dataclass(frozen=True)
class Tied:
    """A step whose token is not the best, and ties with it."""

    step: int
    gap: float
    """Distance from the best token's logit, in units in the last place of that logit."""


Path = tuple[tuple[int, ...], tuple[Tied, ...]]
"""Tokens, and the ties among them."""


@dataclass(frozen=True)
class Retraced:
    """The longest way along a text by a subject's own steps."""

    tokens: tuple[int, ...]
    ties: tuple[Tied, ...]
    is_whole: bool
    """Whether the steps lead to the end of the text, and end there."""

    def left_at(self, expected: Sequence[int]) -> int:
        """Return the step of the first tie; without one, the first step that is not as ``expected``."""
        apart = (k for k, pair in enumerate(zip(self.tokens, expected, strict=False)) if pair[0] != pair[1])
        shorter = min(len(self.tokens), len(expected))
        return self.ties[0].step if self.ties else next(apart, shorter)

    @property
    def words(self) -> str:
        """Result in words."""
        if not self.is_whole:
            return f"no token that ties with the best leads to it from step {len(self.tokens)} on"
        gaps = ", ".join(f"step {one.step} ({one.gap:.0f} ULP)" for one in self.ties)
        return f"the subject's own steps lead to it; ties at {gaps}" if gaps else "the subject's own steps lead to it"


def rule_of(asked: CheckedSubject, case: Case) -> DecodePolicy:
    """Return the model's rule for choosing tokens, or the subject's if the model leaves it to the caller."""
    decoding = case.family.decoding
    return decoding if decoding.no_repeat_ngram_size else asked.policy or decoding


@dataclass(frozen=True)
class Retracer:
    """Steps of a subject along a text.

    Args:
        asked: a subject with stages.
        inputs: the page's.
        features: the page's, ``vision_fusion``.
        policy: rule by which tokens are chosen, and the most tokens of the output.
        tokenizer: the checkpoint's.
        limits: within which two tokens tie.
    """

    asked: CheckedSubject
    inputs: Mapping[str, Tensor]
    features: Tensor | None
    policy: DecodePolicy
    tokenizer: TextTokenizer
    limits: TieLimits

    @classmethod
    def of(
        cls,
        asked: CheckedSubject,
        case: Case,
        inputs: Mapping[str, Tensor],
        features: Tensor | None,
        tokenizer: TextTokenizer,
        limits: TieLimits,
    ) -> Self:
        """Return the steps of a subject for a case, by the model's rule, or else by the subject's own."""
        policy = replace(rule_of(asked, case), eos_id=tokenizer.special.eos, max_new_tokens=case.max_new_tokens)
        return cls(asked, inputs, features, policy, tokenizer, limits)

    def along(self, text: str) -> Retraced:
        """Follow ``text`` to its end, or to the first step that does not lead on."""
        waiting: list[Path] = [((), ())]
        longest = Retraced((), (), is_whole=False)
        for _ in range(MOST_PATHS):
            if longest.is_whole or not waiting:
                break
            found = self._along(text, waiting.pop(), waiting)
            longest = found if found.is_whole or len(found.tokens) > len(longest.tokens) else longest
        return longest

    def _along(self, text: str, path: Path, waiting: list[Path]) -> Retraced:
        """Follow ``text`` after ``path``; put other paths that lead on into ``waiting``."""
        prompt: list[int] = self.inputs["input_ids"][0].tolist()
        limit, ban = self.policy.room(len(prompt)), self.policy.ban((*prompt, *path[0]))
        state, logits = self.asked.prefill(self.inputs, self.features)
        for token in path[0]:
            logits = self.asked.step(state, token)
        while len(path[0]) < limit:
            ways = [*self._further(text, path, self._best(logits, ban.banned()), limit)]
            if not ways:
                break
            path, *others = ways
            waiting += reversed(others)
            token = path[0][-1]
            if token == self.policy.eos_id or len(path[0]) == limit:
                return Retraced(*path, is_whole=True)
            ban.push(token)
            logits = self.asked.step(state, token)
        return Retraced(*path, is_whole=False)

    def _further(self, text: str, path: Path, best: Iterable[tuple[int, float]], limit: int) -> Iterator[Path]:
        """Yield the path with each of the best tokens that leads on along ``text``."""
        tokens, ties = path
        for rank, (token, gap) in enumerate(best):
            if self._leads_on((*tokens, token), text, limit):
                yield (*tokens, token), (*ties, *([Tied(len(tokens), gap)] if rank else []))

    def _best(self, logits: Tensor, banned: list[int]) -> Iterator[tuple[int, float]]:
        """Yield the tokens that tie with the best one, the best one first, and their distance from it in ULP."""
        allowed = logits.clone()
        allowed[banned] = -torch.inf
        logits_of, ids = (found.tolist() for found in allowed.topk(min(MOST_TIED, len(allowed))))
        most = logits_of[0]
        for logit, token in sorted(zip(logits_of, ids, strict=True), key=lambda one: (-one[0], one[1])):
            gap = (most - logit) / self.limits.ulp(most)
            if gap <= UNSEEN * self.limits.ties:
                yield token, gap

    def _leads_on(self, tokens: Sequence[int], text: str, limit: int) -> bool:
        """Return whether ``tokens`` spell a beginning of ``text``, or all of it if they end the output."""
        spelt = self.tokenizer.decode(tokens)
        if tokens[-1] == self.policy.eos_id or len(tokens) == limit:
            return clean_output(spelt) == text
        begun = spelt.lstrip().rstrip(PART_OF_CHARACTER)
        return text.startswith(begun) or text == begun.rstrip()
