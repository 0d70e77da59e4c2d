"""Mistakes of decode steps: positions, the cache, the token that is fed, and the policy.

They act once the prompt has been read, so the pass over the prompt is right.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.base.words import count
from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.engine.pipeline import DecodeState, Pipeline
from pytest_dsocr.explain.catalogue.blocks import rounding
from pytest_dsocr.explain.catalogue.kv_cache import add_cache
from pytest_dsocr.explain.catalogue.rotary import positioned
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group, MistakeTable
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.models.spec import ModelSpec

SIGNS = {
    Symptom.FROM_PREFILL: ("logits-late",),
    Symptom.FROM_FIRST_STEP: ("positions-one-low", "cache-own-hidden", "prompt-again"),
    Symptom.STANDS_STILL: ("logits-still",),
    Symptom.REPETITION: ("logits-still",),
}
OF_TOKENS = {
    Symptom.SAID_FORBIDDEN: ("size-0", "size-35"),
    Symptom.NOT_ITS_BEST: ("size-3",),
    Symptom.NO_END: ("eos-2",),
}


def step_mistakes(prefill: Group, family: ModelSpec) -> Group:
    """Return the mistakes of steps, and then those of the prompt's pass that may be in steps only."""
    group, ring = Group("steps", SIGNS, None), family.cache.ring
    group.rows("positions", POSITIONS | (of_slots(ring) if ring else {}), _positioned)
    add_cache(group, ring)
    words = "each step written over the one in front of it in the cache"
    group.add("cache-written-over", words, _written_over, kind="cache")
    group.rows("fed", FED, _feeds)
    group.add("fed-twice", "each token fed twice", partial(_stepping, run=_twice), kind="fed")
    group.add("prompt-again", "the prompt's last token fed once more in front of the first step", _first_again)
    group.add("logits-late", "each step's logits given a step too late", _late)
    group.add("logits-still", "the prompt's logits given at every step", _still)
    group.add("vision-again", "vision run again in every step, and its features thrown away", _vision_again)
    for one in prefill.of("block", "wide", "back"):
        words, kind = f"{one.words}, in steps", f"{one.group}.{one.kind}"
        own = replace(one, group="steps", name=one.id, words=words, part="block", kind=kind, signs={}, in_steps=True)
        group.append(own)
    return group


def token_mistakes(family: ModelSpec) -> Group:
    """Return the mistakes of the policy: the length of forbidden n-grams, and the end."""
    group, own = Group("tokens", OF_TOKENS), family.decoding.no_repeat_ngram_size
    for size in (one for one in SIZES if one != own):
        words = f"an n-gram rule of {count(size, 'token')} in place of {own or 'none'}" if size else "no n-gram rule"
        group.add(f"size-{size}", words, partial(_policy, no_repeat_ngram_size=size), kind=RULE)
    for window in () if own else WINDOWS_OF_CARD:
        words = f"an n-gram rule of 35 tokens within the last {window}, as the model's card asks for, in place of none"
        plant = partial(_policy, no_repeat_ngram_size=35, ngram_window=window)
        group.add(f"window-{window}", words, plant, kind=RULE)
    group.add("eos-2", "another id, 2, taken for EOS", partial(_policy, eos_id=2))
    return group


def _policy(on: Target, **how: int) -> None:
    on.changes.set(on.engine, "policy", replace(on.engine.policy, **how))


RULE = "rule"
"""Kind of the mistakes of the n-gram rule."""
WINDOWS_OF_CARD = (128, 1024)
SIZES = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 18, 19, 21, 22, 25, 30, 32, 35, 40, 50, 64)
Position = Callable[[Target, int], float]
"""Change the position of a step's token."""


def _image(on: Target) -> int:
    return on.prompt.image[1] - on.prompt.image[0]


POSITIONS: MistakeTable = {
    "one-high": ("positions of steps one too high", lambda on, at: at + 1),
    "one-low": ("positions of steps one too low", lambda on, at: at - 1),
    "still": ("every step at the position behind the prompt", lambda on, at: on.prompt.length),
    "still-low": ("every step at the position of the prompt's last token", lambda on, at: on.prompt.length - 1),
    "zero": ("every step at position 0", lambda on, at: 0),
    "from-zero": ("positions of steps counted from 0", lambda on, at: at - on.prompt.length),
    "from-one": ("positions of steps counted from 1", lambda on, at: at - on.prompt.length + 1),
    "text": ("positions of steps that leave out the image's tokens", lambda on, at: at - _image(on)),
    "text-one": ("positions of steps that count the image as one token", lambda on, at: at - _image(on) + 1),
    "double": ("two positions for each step", lambda on, at: 2 * at - on.prompt.length),
    "image-twice": ("positions of steps that count the image's tokens twice", lambda on, at: at + _image(on)),
    **rounding(
        "positions of steps rounded to {}", lambda change: lambda on, at: float(change(torch.tensor(float(at))))
    ),
    "two-high": ("positions of steps two too high", lambda on, at: at + 2),
    "capped": ("positions of steps that end at 1023", lambda on, at: min(at, 1023)),
}


def of_slots(ring: int) -> dict[str, tuple[str, Position]]:
    """Return the rows about positions for a ring of ``ring`` tokens."""
    again = "positions of steps that begin again with the ring, each that of its slot"
    full = "positions of steps that stand still once the ring is full"
    return {
        "slot": (again, lambda on, at: on.prompt.length + (at - on.prompt.length) % ring),
        "full": (full, lambda on, at: min(at, on.prompt.length + ring - 1)),
        "next": (full + ", one further", lambda on, at: min(at, on.prompt.length + ring)),
    }


def _positioned(on: Target, change: Position) -> None:
    def moved(on: Target, at: Tensor) -> Tensor:
        return torch.zeros_like(at) + change(on, int(at)) if at.numel() == 1 else at

    positioned(on, moved)


def _written_over(on: Target) -> None:
    advance = KVCache.advance
    on.changes.set(KVCache, "advance", lambda cache, new: advance(cache, new) if new > 1 else None)


FeedTokens = Callable[[Sequence[int]], Tensor]
"""Feed tokens, and return the next logits."""


def _stepping(on: Target, run: Callable[[FeedTokens, Sequence[int]], Tensor]) -> None:
    """Replace each step by ``run(step, tokens)``; ``step`` is the step before."""
    step = Pipeline.decode_step

    def decode_step(pipeline: Pipeline[Any], state: DecodeState[Any], tokens: Sequence[int]) -> Tensor:
        return run(partial(step, pipeline, state), tokens)

    on.changes.set(Pipeline, "decode_step", decode_step)


TokenChoice = Callable[[list[int]], int]
"""Choose the token for a step among the prompt's last token and all later ones."""
FED: dict[str, tuple[str, TokenChoice]] = {
    "before": ("each step fed the token in front of the right one", lambda tokens: tokens[-2]),
    "late": (
        "each step behind the first fed the token in front of the right one",
        lambda tokens: tokens[-2] if len(tokens) > 2 else tokens[-1],
    ),
    "bos": ("each step fed BOS", lambda tokens: 0),
    "last": ("each step fed the prompt's last token", lambda tokens: tokens[0]),
    "first": ("each step fed the first token", lambda tokens: tokens[1]),
}


def _feeds(on: Target, which: TokenChoice) -> None:
    right = [on.prompt.last]

    def fed(step: FeedTokens, tokens: Sequence[int]) -> Tensor:
        right.extend(tokens)
        return step([which(right)])

    _stepping(on, fed)


def _twice(step: FeedTokens, tokens: Sequence[int]) -> Tensor:
    step(tokens)
    return step(tokens)


def _first_again(on: Target) -> None:
    last = [on.prompt.last]

    def again(step: FeedTokens, tokens: Sequence[int]) -> Tensor:
        while last:
            step([last.pop()])
        return step(tokens)

    _stepping(on, again)


def _late(on: Target) -> None:
    assert on.prompt.logits is not None
    every = [on.prompt.logits]

    def late(step: FeedTokens, tokens: Sequence[int]) -> Tensor:
        every.append(step(tokens))
        return every[-2]

    _stepping(on, late)


def _still(on: Target) -> None:
    logits = on.prompt.logits
    assert logits is not None
    _stepping(on, lambda step, tokens: logits)


def _vision_again(on: Target) -> None:
    def seeing(step: FeedTokens, tokens: Sequence[int]) -> Tensor:
        on.core.sam_model(on.core.embed_tokens.weight.new_zeros(1, 3, 64, 64))
        return step(tokens)

    _stepping(on, seeing)
