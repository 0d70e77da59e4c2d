"""What the server says of its tokens' probabilities: in itself, and beside the reference's logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import exp, inf
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from pytest_dsocr.compare.verdict import Comparison, Verdict

from .asked import MANY, Asked, judged, not_offered

if TYPE_CHECKING:
    from pytest_dsocr.adapters.chat import Completion
    from pytest_dsocr.observation.answer import ForcedStep
    from pytest_dsocr.observation.case import Case
    from pytest_dsocr.observation.observation import Step

TOP = 10
CUTS = 6
"""Places of the reference's text that an answer is to go on from."""
ROUNDED = 1e-4
OFFERED = "logprobs with top_logprobs"
BEGINS_ANEW = {"add_generation_prompt": False, "continue_final_message": True}


class Likely(Struct):
    """A token, and the logarithm of its probability."""

    token: str
    logprob: float
    top_logprobs: list[Likely] = []


class _Logprobs(Struct):
    content: list[Likely]


def with_logprobs(asked: Asked, case: Case, most: int = MANY, **how: Any) -> Completion:
    """Ask with the best tokens of each step; without them where the server refuses them."""
    from pytest_dsocr.adapters.chat import RefusedError

    try:
        return asked(case, most, logprobs=True, top_logprobs=TOP, **how)
    except RefusedError:
        return asked(case, most, **how)


def tokens_of(answer: Completion) -> list[Likely]:
    """Return the tokens of an answer with their best; nothing where the server gives none."""
    try:
        found = msgspec.convert(answer.logprobs, _Logprobs).content
    except msgspec.ValidationError:
        return []
    return found if all(one.top_logprobs for one in found) else []


def first_apart(actual: Completion, expected: Completion) -> float:
    """Return how far the first tokens' logarithms are apart; 0 where there are none."""
    pairs = zip(tokens_of(actual)[:1], tokens_of(expected)[:1], strict=False)
    return max((abs(one.logprob - other.logprob) for one, other in pairs), default=0.0)


def logprobs(asked: Asked) -> Comparison:
    """Look whether the tokens are those of the text, each the best of its step, and the best sorted."""
    faults = []
    for case in (asked.odd["plain"], asked.first):
        answer = with_logprobs(asked, case)
        if not (found := tokens_of(answer)):
            return not_offered("logprobs", OFFERED)
        if (said := "".join(one.token for one in found).strip()).find(answer.text.strip()):
            faults.append(f"{case.id}: they spell {said[-24:]!r} at the end, the text {answer.text[-24:]!r}")
        faults += [f"{case.id}, token {k}: {why}" for k, one in enumerate(found) for why in _faults(one)]
    return judged("logprobs", faults, f"each of {len(found)} tokens the best", "that they are of this step, and sorted")


def _faults(one: Likely) -> Iterator[str]:
    best = one.top_logprobs
    if [one.logprob for one in best] != sorted((one.logprob for one in best), reverse=True):
        yield "the best are not sorted"
    elif one.logprob < best[0].logprob - ROUNDED:
        yield f"{one.token!r} at {one.logprob:.3f}, and {best[0].token!r} is the best at {best[0].logprob:.3f}"
    if (most := sum(exp(one.logprob) for one in best)) > 1 + ROUNDED:
        yield f"probabilities of {most:.3f} in all"


def logits(asked: Asked) -> Comparison:
    """Compare them with the reference's logits along the server's own text, up to the first token that differs."""
    from pytest_dsocr.compare.tokens import compare_logits

    found = tokens_of(with_logprobs(asked, asked.first))
    if not found:
        return not_offered("logits", OFFERED)
    compared = compare_logits(*_along(asked, found, asked.steps), asked.limits)
    return _hinted(replace(compared, what="logits/own_text"))


def continuation(asked: Asked) -> Comparison:
    """Compare what the server says behind the reference's text so far, where it goes on from a text."""
    from pytest_dsocr.adapters.chat import RefusedError
    from pytest_dsocr.compare.tokens import compare_logits

    what, tokens = "logits/reference_text", [step.token for step in asked.steps]
    forced: list[ForcedStep] = []
    expected: list[Step] = []
    alone = asked(asked.first, 1).prompt_tokens
    for k in _cuts(asked, tokens):
        try:
            answer = with_logprobs(asked, asked.first, 1, answer=asked.tokenizer.decode(tokens[:k]), **BEGINS_ANEW)
        except RefusedError as refused:
            return not_offered(what, f"to go on from a text ({refused.status})")
        if not (found := tokens_of(answer)) or None in (alone, answer.prompt_tokens):
            return not_offered(what, f"{OFFERED} behind a text")
        if (answer.prompt_tokens or 0) - (alone or 0) < k // 2:
            return not_offered(what, "to go on from a text: it begins anew")
        one, other = _along(asked, found[:1], asked.steps[k : k + 1])
        forced, expected = [*forced, *one], [*expected, *other]
    return _hinted(replace(compare_logits(forced, expected, asked.limits), what=what))


def _cuts(asked: Asked, tokens: Sequence[int]) -> list[int]:
    """Return places where the text so far is made of the same tokens, and has no white space at its end."""
    texts = {k: asked.tokenizer.decode(tokens[:k]) for k in range(1, min(len(tokens), 4 * MANY))}
    good = [k for k, text in texts.items() if text == text.strip() and asked.tokenizer.encode(text) == [*tokens[:k]]]
    return good[:: max(1, len(good) // CUTS)]


def _along(asked: Asked, found: Sequence[Likely], steps: Sequence[Step]) -> tuple[list[ForcedStep], list[Step]]:
    """Return both sides of each step up to the first token that differs: logarithms as logits, from one best on.

    Steps at which the reference's rule forbids its best token are left out, and tokens beyond the server's best count
    as the last of these where that is more than the reference has.
    """
    from pytest_dsocr.observation.answer import ForcedStep
    from pytest_dsocr.observation.observation import Best

    sides: tuple[list[ForcedStep], list[Step]] = ([], [])
    for one, step in zip(found, steps, strict=False):
        texts = [asked.tokenizer.decode([token]) for token in step.best.ids]
        own = {best.token: best.logprob for best in one.top_logprobs}
        shift = step.best.logits[0] - own.get(texts[0], inf)
        least = min(own.values()) + shift
        at = tuple(
            own[text] + shift if text in own else min(logit, least)
            for text, logit in zip(texts, step.best.logits, strict=True)
        )
        if step.token == step.best.ids[0]:
            sides[0].append(ForcedStep(step.token, Best(step.best.ids, at), at))
            sides[1].append(step)
        if one.token != asked.tokenizer.decode([step.token]):
            break
    return sides


def _hinted(compared: Comparison) -> Comparison:
    check = "check: that they are logarithms of the softmax of the logits as they are, before temperature and rules"
    return replace(compared, details=(check, *compared.details)) if compared.verdict is Verdict.WRONG else compared
