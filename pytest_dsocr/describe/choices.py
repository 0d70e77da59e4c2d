"""Describe the tokens of a text that are not the best ones by the right logits: drawn, penalised, or after the end.

Shapes: S steps, V tokens of the vocabulary.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from pytest_dsocr.base.words import count, joined, quoted
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.ends import ends_early, of_early_end
from pytest_dsocr.describe.measured import measured

LEAST = 8
"""Smallest number of steps that tokens are called drawn from."""
LEAST_TIED = 5
"""Smallest number of steps that show rounding: any small error flips one or two nearly equal tokens."""
LONGEST = 64
"""Largest size of n-grams that is looked for."""
SHORT = 2
"""Size of n-grams up to which a single choice shows nothing."""
ABSURD = 4.0
"""Standard deviations by which drawn tokens are no less likely than expected."""
FAR = 50
"""Rank of a token that no sampling would choose often: the text is not made of these tokens."""
TIE = 1e-4
"""Difference of tied logits."""
MOST_NAMED, WIDTH = 3, 20
"""Largest number of tokens or steps that are named; width of a quoted token."""
PASSED_OVER = "passed-over"
"""Kind of the description that says where another token than the best was chosen, and not by which rule."""
WARMTHS = tuple(k / 20 for k in range(2, 41))
"""Temperatures that are tried."""
WINDOWS = (16, 32, 64, 128, 256, 512, 1024, 1 << 20)
"""Numbers of last tokens that a penalty may look at; the last is all of them."""


@dataclass(frozen=True, eq=False)
class Choices:
    """Tokens that a subject chose, with the right logits along them."""

    tokens: Sequence[int]
    logits: Tensor
    """``[S, V]``; banned tokens are minus infinity."""
    before: Sequence[int]
    """Tokens of the prompt."""
    eos: int
    spell: Callable[[int], str] | None = None
    """Returns a token's text."""
    ends: Sequence[int] = ()
    """Numbers of tokens after which other pages' wrong texts end early."""
    blanks: int = 0
    """Number of blank tokens before the end, which a text may lack."""

    def named(self, token: int) -> str:
        """Return a token's id, with its text if that is known."""
        return f"token {token}{f' ({quoted(self.spell(token), WIDTH)})' if self.spell else ''}"

    @cached_property
    def best(self) -> list[int]:
        """The best token of each step."""
        found: list[int] = self.logits.argmax(-1).tolist()
        return found

    @cached_property
    def other(self) -> list[int]:
        """Steps at which another token than the best was chosen, ties left out."""
        own = self.logits.gather(1, torch.tensor(self.tokens)[:, None])[:, 0]
        found: list[int] = (self.logits.amax(-1) - own > TIE).nonzero().flatten().tolist()
        return found

    @cached_property
    def refused(self) -> frozenset[int]:
        """Steps of ``other`` as a set."""
        return frozenset(self.other)

    def rank(self, step: int) -> int:
        """Return the rank of the chosen token, 1 for the best."""
        row = self.logits[step]
        return 1 + int((row > row[self.tokens[step]]).sum())

    def last(self, step: int, window: int) -> set[int]:
        """Return the last tokens before a step."""
        seen = [*self.before, *self.tokens[:step]]
        return {*seen[-window:]}


def of_choices(choices: Choices, *, is_sure: bool) -> Iterator[Description]:
    """Yield the rule by which other tokens than the best ones were chosen, the simplest first.

    Args:
        choices: a text's tokens.
        is_sure: whether the subject's own logits are known to be right; if not, nothing is said of drawn tokens.
    """
    steps = len(choices.tokens)
    if not choices.other:
        return
    yield from measured(_of_end, choices)
    yield from measured(of_early_end, choices)
    if ends_early(choices):
        return
    yield from measured(_never_chosen, choices)
    yield from measured(_of_ngrams, choices)
    if sorted(map(choices.rank, choices.other))[len(choices.other) // 2] > FAR:
        return
    yield from measured(_of_rounding, choices)
    yield from measured(_penalised, choices)
    if is_sure and len(choices.other) >= LEAST:
        ranks = [choices.rank(step) for step in choices.other]
        named = " to ".join(dict.fromkeys(map(str, (min(ranks), max(ranks)))))
        likely = choices.logits.softmax(-1).gather(1, torch.tensor(choices.tokens)[:, None])[choices.other, 0]
        text = (
            f"at {len(ranks)} of {count(steps, 'step')} the token is not the best one but of rank {named} "
            f"(a probability of {float(likely.median()):.2g} in the median), as if drawn"
        )
        warmth = min(WARMTHS, key=lambda one: abs(_expected(choices.logits, one) - len(ranks)))
        if _is_likely(choices, warmth):
            yield Description("drawn", f"{text} at a temperature of about {warmth:g}", 1.0, steps)
    if is_sure and len(choices.other) <= MOST_NAMED:
        yield _passed_over(choices)


def _expected(logits: Tensor, warmth: float) -> float:
    """Return the expected number of tokens that are not the best if they are drawn."""
    return float((1 - (logits / warmth).softmax(-1).amax(-1)).sum())


def _is_likely(choices: Choices, warmth: float) -> bool:
    """Return whether the tokens are about as likely as drawn ones are expected to be."""
    logs = (choices.logits.double() / warmth).log_softmax(-1)
    chances, known = logs.exp(), logs.nan_to_num(neginf=0.0)
    mean, square = ((chances * known**power).sum(-1) for power in (1, 2))
    own = float(logs.gather(1, torch.tensor(choices.tokens)[:, None]).sum())
    spread = math.sqrt(float((square - mean.square()).sum()))
    return own >= float(mean.sum()) - ABSURD * spread


def _of_rounding(choices: Choices) -> Iterator[Description]:
    """Yield the dtype in which every chosen token is the best one or tied with it, at more steps than chance gives."""
    for dtype in (torch.float16, torch.bfloat16) if len(choices.other) >= LEAST_TIED else ():
        rounded = choices.logits.to(dtype)
        own = rounded.gather(1, torch.tensor(choices.tokens)[:, None])[:, 0]
        if bool((own == rounded.amax(-1)).all()):
            name = str(dtype).removeprefix("torch.")
            text = f"at {count(len(choices.other), 'step')} the token is one of several best ones in {name}"
            yield Description("tied", f"{text}: as if the logits were rounded to it", 1.0, len(choices.tokens))


def _of_ngrams(choices: Choices) -> Iterator[Description]:
    """Yield the longest n-grams that explain all choices if they may not repeat, with their window."""
    for size in range(LONGEST, 0 if len(choices.other) > 1 else SHORT, -1):
        ban, needed, allowed = NgramBan(size, choices.before), 0, sys.maxsize
        for step, token in enumerate(choices.tokens):
            best = choices.best[step]
            back = ban.distances()
            if step in choices.refused:
                needed = max(needed, back.get(best, sys.maxsize))
            allowed = min(allowed, back.get(token, sys.maxsize) - 1)
            ban.push(token)
        if needed <= allowed and _is_greedy(choices, size, needed):
            reach = "any number of" if allowed >= sys.maxsize - 1 else f"{allowed:,}"
            within = " to ".join(dict.fromkeys((f"{needed:,}", reach)))
            at = f"at {count(len(choices.other), 'step')} of {len(choices.tokens):,} the best token is not chosen"
            text = f"{at}: as if n-grams of {size} may not repeat within {within} tokens, which explains every choice"
            yield Description("ngrams", text, 1.0, len(choices.tokens))
            return


def _is_greedy(choices: Choices, size: int, window: int) -> bool:
    """Return whether each token is the best one that does not repeat an n-gram."""
    ban = NgramBan(size, choices.before, window)
    for step, token in enumerate(choices.tokens):
        row = choices.logits[step].clone()
        row[ban.banned()] = -torch.inf
        if float(row.max() - row[token]) > TIE:
            return False
        ban.push(token)
    return True


def _of_end(choices: Choices) -> Iterator[Description]:
    """Yield that EOS was best and another token was chosen."""
    at = [step for step in choices.other if choices.best[step] == choices.eos]
    if at and at[0] == choices.other[0]:
        more = len(choices.tokens) - at[0] - (choices.tokens[-1] == choices.eos)
        text = (
            f"EOS was best at step {at[0] + 1:,} and not chosen; {count(more, 'token')} more follow{'s' * (more == 1)}"
        )
        yield Description("no-end", text, 1.0, len(at))


def _never_chosen(choices: Choices) -> Iterator[Description]:
    """Yield the tokens that are never chosen, if they were best more often than once, and all else is the best."""
    refused = dict[int, list[int]]()
    for step in choices.other:
        row = choices.logits[step]
        for token in (row > row[choices.tokens[step]] + TIE).nonzero().flatten().tolist():
            refused.setdefault(token, []).append(step)
    if len(refused) >= len(choices.other) or {*refused} & {*choices.tokens}:
        return
    tokens = joined([choices.named(one) for one in sorted(refused)])
    text = (
        f"at {count(len(choices.other), 'step')} of {len(choices.tokens):,}, from step {choices.other[0] + 1:,} on, "
        f"the best token is not chosen; every token is the best one if {tokens} may never be chosen"
    )
    yield Description("never-chosen", text, 1.0, len(choices.other) - len(refused))


def _passed_over(choices: Choices) -> Description:
    """Return the few steps at which another token than the best was chosen."""
    at = [
        f"at step {step + 1:,} {choices.named(choices.best[step])} is best, and {choices.named(choices.tokens[step])}, "
        f"of rank {choices.rank(step)}, is chosen"
        for step in choices.other
    ]
    text = f"{'; '.join(at)}; the other {count(len(choices.tokens) - len(at), 'token')} are the best ones"
    return Description(PASSED_OVER, text, 1.0, len(choices.tokens))


def _penalised(choices: Choices) -> Iterator[Description]:
    """Yield the windows and the bounds of a penalty for repetition that explain all choices."""
    found = {one: bounds for one in WINDOWS if (bounds := _bounds(choices, one)) and bounds[0] < bounds[1]}
    if found:
        names = ["any number of" if one == WINDOWS[-1] else str(one) for one in (min(found), max(found))]
        low, high = min(one[0] for one in found.values()), max(one[1] for one in found.values())
        where = (
            f"at {count(len(choices.other), 'step')} of {len(choices.tokens):,}, from step {choices.other[0] + 1:,} on"
        )
        text = (
            f"{where}, the best token is a repeated one and was not chosen; a penalty for repetition from {low:.4g} to "
            f"{high:.4g} within the last {' to '.join(dict.fromkeys(names))} tokens explains every choice"
        )
        yield Description("penalised", text, 1.0, len(choices.tokens))


def _bounds(choices: Choices, window: int) -> tuple[float, float] | None:
    """Return the penalties between which every chosen token is the best; None if no penalty explains a choice.

    A penalty divides a positive logit of a repeated token, and multiplies a negative one.
    """
    low, high = 1.0, float("inf")
    for step, token in enumerate(choices.tokens):
        row, used = choices.logits[step].clone(), choices.last(step, window)
        repeated = torch.tensor(sorted(used))
        own = float(row[token])
        others = row.clone()
        others[token] = -torch.inf
        new = others.clone()
        new[repeated] = -torch.inf
        best_new, best_old = float(new.max()), float(others[repeated].max())
        if token in used:
            if best_old > own + TIE:
                return None
            if own > 0 and best_new > 0:
                high = min(high, own / best_new)
        else:
            if best_new > own + TIE:
                return None
            if best_old > own + TIE:
                if own <= 0:
                    return None
                low = max(low, best_old / own)
    return (low, high) if low > 1.0 else None
