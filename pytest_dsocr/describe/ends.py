"""Describe a text that ends early: cut off by a limit of tokens, or ended by an EOS that is not the best token."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_dsocr.base.words import count
from pytest_dsocr.describe.description import Description

if TYPE_CHECKING:
    from pytest_dsocr.describe.choices import Choices

EARLY_END, CUT_OFF = "early-end", "cut-off"
"""Kinds of descriptions: an EOS may have been chosen, or none was."""
UNLIKELY, UNLIKELY_BELOW = 50, 7.0
"""Rank and distance in logits, a thousandth in odds, beyond which no EOS is chosen; nor was it where it was nearer."""
LIMITS = 64, 100
"""Numbers of which limits of tokens are multiples."""


def ends_early(choices: Choices) -> bool:
    """Return whether the text only lacks its end: all its tokens are the best ones, and then it ends.

    A text does not show its EOS, which is added to its tokens.
    """
    last = len(choices.tokens) - 1
    return choices.other == [last] and choices.tokens[last] == choices.eos


def of_early_end(choices: Choices) -> Iterator[Description]:
    """Yield where a text ends early: cut off, or with the rank of the EOS that may have ended it.

    An EOS far from the best token is not chosen. A limit ends several texts after the same number of tokens.
    """
    last = len(choices.tokens) - 1
    if not ends_early(choices) or (choices.spell and not choices.spell(choices.best[last]).strip()):
        return  # white space at its end, which a text lacks
    every = range(last - choices.blanks, last + 1)
    below = choices.logits.amax(-1) - choices.logits[:, choices.eos]
    at = min(every, key=lambda step: float(below[step]))
    rank, alike = 1 + int((choices.logits[at] > choices.logits[at, choices.eos]).sum()), {*every} & {*choices.ends}
    after = f"{every[0]:,} to {last:,} tokens" if choices.blanks else count(last, "token")
    far = f"of rank {rank:,}, {float(below[at]):.3g} below the best, {choices.named(choices.best[at])}"
    nearest = float(below[: every[0]].min()) if every[0] else math.inf
    is_refused = rank > UNLIKELY or float(below[at]) > max(nearest, UNLIKELY_BELOW)
    if is_refused or alike or any(step and step % one == 0 for step in every for one in LIMITS):
        pages = sum(one in alike for one in choices.ends)
        as_before = f", as {count(pages, 'page')} read before" if pages else ""
        text = f"the text ends after {after} without an EOS{as_before}, as if a limit cut it off; EOS is {far}"
        yield Description(CUT_OFF, text, 1.0, last)
        return
    text = f"the text ends after {after}; if an EOS ended it, that was {far}"
    if nearest > float(below[at]):
        most = f" to {nearest:.3g}" if every[0] else ""
        text += f"; as if {float(below[at]):.3g}{most} were added to its logit, or more from step to step"
    else:
        step = int(below[: every[0]].argmin()) + 1
        text += f"; it was nearer at step {step:,}, by {nearest:.3g}, and not chosen there"
    yield Description(EARLY_END, text, 1.0, last)
