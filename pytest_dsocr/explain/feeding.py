"""Tokens that a loop feeds once more, told from a text: each token is the best one if they are fed so."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from pytest_dsocr.base.words import count
from pytest_dsocr.describe.choices import Choices
from pytest_dsocr.describe.description import Description
from pytest_dsocr.describe.measured import is_time_over
from pytest_dsocr.explain.texts import TextPage

FED = "fed"
"""Kind of a description of a text by what was fed."""
MOST_AGAIN = 4
"""Largest number of the prompt's last tokens that may be fed again."""
LEAST_TWICE = 2
"""Smallest number of tokens that show which one was fed twice: the first of them finds it."""


class FedTokens(NamedTuple):
    """Tokens in the order in which they are fed after the prompt."""

    tokens: list[int]
    before: list[int]
    """Number of fed tokens before each choice."""


class FeedingWay(NamedTuple):
    """A way to feed tokens."""

    words: Callable[[Choices], str]
    feed: Callable[[Choices, Sequence[int]], FedTokens]


def describe_fed(page: TextPage, choices: Choices, others: Sequence[TextPage], *, is_sure: bool) -> Description | None:
    """Return the way to feed tokens under which each token of a text is the best one; None if there is none.

    Args:
        page: the page.
        choices: its tokens, with the logits along them as they should be fed.
        others: pages that were read before, which must have been fed in the same way.
        is_sure: whether the subject's own steps are known to be right.
    """
    last = len(choices.tokens) - 1
    if not page.is_wide or not choices.other or choices.other == [last]:
        return None
    wrong = (
        f"{count(len(choices.other), 'token')} of {len(choices.tokens)} {'is' if len(choices.other) == 1 else 'are'}"
    )
    for way in _WAYS:
        if not is_time_over() and _fits(page, choices, way) and all(_fits(one, choices_of(one), way) for one in others):
            pages = f", and so on {count(len(others), 'page')} read before" if others else ""
            text = f"{way.words(choices)}: each token is the best one then{pages}, and {wrong} not otherwise"
            return Description(FED, text, 1.0, len(choices.tokens))
    if not is_sure or len(choices.other) < LEAST_TWICE:
        return None
    ways = {step: _twice(step) for step in range(choices.other[0])}
    found = [step for step, way in ways.items() if not is_time_over() and _fits(page, choices, way)]
    if len(found) != 1:
        return None
    text = f"{ways[found[0]].words(choices)}: each token is the best one then, and {wrong} not otherwise"
    return Description(FED, text, 1.0, len(choices.tokens))


def choices_of(page: TextPage) -> Choices:
    """Return the tokens of a page's text with the right logits along them."""
    engine = page.engine
    tokens = page.ids[: page.case.max_new_tokens]
    logits = torch.cat([page.state.logits, *page.known[: len(tokens) - 1]])
    prompt = page.clean.inputs.input_ids[0].tolist()
    spell = partial(_spelled, page)
    return Choices(tokens, _with_ban(page, tokens, logits, prompt), prompt, engine.policy.eos_id, spell)


def without_end(choices: Choices) -> Choices:
    """Return the choices without a last one that is not the best: a server's loop may end there without an EOS."""
    last = len(choices.tokens) - 1
    if last in choices.other and choices.other != [last]:
        return replace(choices, tokens=choices.tokens[:last], logits=choices.logits[:last])
    return choices


def _spelled(page: TextPage, token: int) -> str:
    return page.engine.tokenizer.decode([token])


def _with_ban(page: TextPage, tokens: Sequence[int], logits: Tensor, prompt: Sequence[int]) -> Tensor:
    """Return logits ``[S, V]`` of which the banned ones are minus infinity."""
    ban, own = page.engine.policy.ban(prompt), logits.float().cpu()
    for row, token in zip(own, tokens, strict=True):
        row[ban.banned()] = -torch.inf
        ban.push(token)
    return own


def _fits(page: TextPage, choices: Choices, way: FeedingWay) -> bool:
    """Return whether each token of a page is the best one under a way; the first of them are tried alone at first."""
    size = len(choices.tokens)
    for some in dict.fromkeys((min(page.apart + 1, size), size)):
        fed = way.feed(choices, choices.tokens[:some])
        logits = [page.state.logits, *page.along(fed.tokens)]
        own = torch.cat([logits[place] for place in fed.before])
        tokens = choices.tokens[:some]
        banned = _with_ban(page, tokens, own, choices.before)
        if replace(choices, tokens=tokens, logits=banned).other:
            return False
    return True


def _first(extra: Callable[[Choices], Sequence[int]], choices: Choices, tokens: Sequence[int]) -> FedTokens:
    """Feed some tokens before the first choice."""
    more = [*extra(choices)]
    return FedTokens([*more, *tokens[:-1]], [*range(len(more), len(more) + len(tokens))])


def _each_twice(choices: Choices, tokens: Sequence[int]) -> FedTokens:
    return FedTokens([one for token in tokens[:-1] for one in (token, token)], [2 * k for k in range(len(tokens))])


def _twice(step: int) -> FeedingWay:
    """Return the way in which the token that was chosen at one step is fed twice."""

    def feed(choices: Choices, tokens: Sequence[int]) -> FedTokens:
        fed = [*tokens[:-1]]
        if step >= len(fed):
            return FedTokens(fed, [*range(len(tokens))])
        return FedTokens([*fed[: step + 1], *fed[step:]], [*range(step + 1), *range(step + 2, len(tokens) + 1)])

    def words(choices: Choices) -> str:
        at = len(choices.before) + step
        named = choices.named(choices.tokens[step])
        return f"{named} of step {step + 1:,} is fed twice, at positions {at:,} and {at + 1:,}"

    return FeedingWay(words, feed)


def _again(number: int) -> FeedingWay:
    """Return the way in which the prompt's last tokens are fed once more."""

    def words(choices: Choices) -> str:
        at, named = len(choices.before), choices.named(choices.before[-1])
        if number == 1:
            return f"the prompt's last {named}, at position {at - 1:,}, is fed again at {at:,}, before the first choice"
        return f"the prompt's last {number} tokens are fed again, from position {at:,} on, before the first choice"

    return FeedingWay(words, partial(_first, lambda choices: choices.before[-number:]))


def _ways() -> Iterator[FeedingWay]:
    """Yield the ways without a number that is fitted, the simplest first."""
    yield from (_again(number) for number in range(1, MOST_AGAIN + 1))
    yield _twice(0)
    yield FeedingWay(lambda _: "each token is fed twice", _each_twice)


_WAYS = (*_ways(),)
