"""Checks of ``logprobs``: consistent in themselves, and equal to the reference's logits within limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import exp, inf
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from pytest_dsocr.compare.verdict import Comparison, Verdict

from .asked import MANY, Asked, judged, not_offered

if TYPE_CHECKING:
    from pytest_dsocr.adapters.completion import Completion
    from pytest_dsocr.records.reference_result import Step
    from pytest_dsocr.records.subject_result import ForcedStep

CUTS = 6
"""Number of places in the reference's text to continue from."""
ROUNDED = 1e-4
OFFERED = "logprobs with top_logprobs"
GO_ON = {"add_generation_prompt": False, "continue_final_message": True}
CHECK = "that logprobs are log-softmax of this step's logits before temperature and token rules"
Sides = tuple[list["ForcedStep"], list["Step"]]


class Likely(Struct):
    """Token with its log-probability, and the best tokens of its step."""

    token: str
    logprob: float
    top_logprobs: list[Likely] = []


def tokens_of(answer: Completion) -> list[Likely]:
    """Return the tokens of an answer with the best of each step; empty if the server returns none."""
    try:
        found = msgspec.convert(answer.logprobs["content"], list[Likely])
    except (TypeError, KeyError, msgspec.ValidationError):
        return []
    return found if all(one.top_logprobs for one in found) else []


def first_apart(actual: Completion, expected: Completion) -> float:
    """Return the difference of the first tokens' log-probabilities; 0 if an answer has none."""
    pairs = zip(tokens_of(actual)[:1], tokens_of(expected)[:1], strict=False)
    return max((abs(one.logprob - other.logprob) for one, other in pairs), default=0.0)


def logprobs(asked: Asked) -> Comparison:
    """Check that tokens spell the text, that each is the best of its step, and that the best are sorted."""
    faults = []
    for case in (asked.odd["plain"], asked.first):
        answer = asked.with_logprobs(case)
        if not (found := tokens_of(answer)):
            return not_offered("logprobs", OFFERED)
        if not (said := "".join(one.token for one in found).strip()).startswith(answer.text.strip()):
            faults.append(f"{case.id}: the tokens end in {said[-24:]!r}; expected the text's end {answer.text[-24:]!r}")
        for k, one in enumerate(found):
            all_of = [best.logprob for best in one.top_logprobs]
            is_best = one.logprob > all_of[0] - ROUNDED
            if all_of != sorted(all_of, reverse=True) or not is_best or sum(map(exp, all_of)) > 1 + ROUNDED:
                faults.append(f"{case.id}, token {k}: {one.token!r} has {one.logprob:.3f}; the best {all_of[:3]}")
    return judged("logprobs", faults, f"each of {len(found)} tokens is the best of its step", CHECK)


def logits(asked: Asked) -> Comparison:
    """Compare log-probabilities with the reference's logits, up to the first token that differs."""
    found = tokens_of(asked.with_logprobs(asked.first))
    return _compared(asked, "logits", _along(asked, found, asked.steps)) if found else not_offered("logits", OFFERED)


def continuation(asked: Asked) -> Comparison:
    """Compare the next token after parts of the reference's text, if the server encodes a part as the same tokens."""
    tokens, alone = [step.token for step in asked.steps], asked(asked.first, 1).prompt_tokens or 0
    sides: Sides = ([], [])
    texts = {k: asked.tokenizer.decode(tokens[:k]) for k in range(1, min(len(tokens) - 1, 4 * MANY))}
    cuts = [k for k, text in texts.items() if text == text.strip() and asked.tokenizer.encode(text) == tokens[:k]]
    for k in cuts[:: max(1, len(cuts) // CUTS)]:
        answer = asked.with_logprobs(asked.first, 1, answer=texts[k], **GO_ON)
        if (answer.prompt_tokens or 0) - alone == k and (found := tokens_of(answer)):
            forced, expected = _along(asked, found[:1], asked.steps[k : k + 1])
            sides = [*sides[0], *forced], [*sides[1], *expected]
    if not sides[0]:
        return not_offered("continuation", "continuing a given text")
    return _compared(asked, "continuation", sides)


def _along(asked: Asked, found: Sequence[Likely], steps: Sequence[Step]) -> Sides:
    """Return both sides' logits of each step up to the first token that differs.

    Log-probabilities are shifted by the reference's best token. A token that the server does not list gets the lower of
    the server's last logit and the reference's. Steps whose best token the reference's rule forbids are left out.
    """
    from pytest_dsocr.records.reference_result import Best
    from pytest_dsocr.records.subject_result import ForcedStep

    sides: Sides = ([], [])
    for one, step in zip(found, steps, strict=False):
        own = {best.token: best.logprob for best in one.top_logprobs}
        pairs = [(asked.tokenizer.decode([token]), logit) for token, logit in zip(*step.best, strict=True)]
        shift = step.best.logits[0] - own.get(pairs[0][0], inf)
        least = min(own.values()) + shift
        at = tuple(own[text] + shift if text in own else min(logit, least) for text, logit in pairs)
        if step.token == step.best.ids[0]:
            sides[0].append(ForcedStep(step.token, Best(step.best.ids, at), at))
            sides[1].append(step)
        if one.token != asked.tokenizer.decode([step.token]):
            break
    return sides


def _compared(asked: Asked, what: str, sides: Sides) -> Comparison:
    from pytest_dsocr.compare.tokens import compare_logits

    found = replace(compare_logits(*sides, asked.limits), what=what)
    check = f"check: {CHECK}; if they are, the model is wrong, in a stage that text alone does not show"
    return replace(found, details=(check, *found.details)) if found.verdict is Verdict.WRONG else found
