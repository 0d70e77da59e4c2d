"""Mistakes of decode steps: positions, the cache, the token that is fed, and the policy.

They act once the prompt has been read, so the pass over the prompt is right.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.engine.pipeline import DecodeState, Pipeline
from pytest_dsocr.explain.catalogue.blocks import int8, rounded, rounding
from pytest_dsocr.explain.catalogue.rotary import positioned
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row
from pytest_dsocr.layers.cache import ALL_TOKENS, KVCache
from pytest_dsocr.layers.rotary import Rope
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
    group.rows("cache", {key: (words, _both(seen)) for key, (words, seen) in SEEN.items()}, _appends)
    every = of_ring(ring) | WINDOWS if ring else WINDOWS | LIKE_A_RING
    group.rows("cache", {key: (words, _both(seen)) for key, (words, seen) in every.items()}, _sees)
    for key, row in STORED.items():
        for which, whose in (("cache", "cache"), ("keys", "cache's keys"), ("values", "cache's values")):
            changed = Row(*row)._replace(how=partial(_stored, store=row[1], which=which))
            group.rows(which, {key: changed}, _appends, words=f"the {whose} held {{}}")
    group.rows("cache", PAIRED, _appends)
    if ring:
        words = "the prompt's keys moved on with the ring, whose positions are counted from the prompt anew"
        group.add("cache-rebased", words, partial(_sees, change=_rebased), kind="cache")
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
        group.append(replace(one, group="steps", name=one.id, words=words, part="block", kind=kind, signs={}))
    return group


def token_mistakes(family: ModelSpec) -> Group:
    """Return the mistakes of the policy: the length of forbidden n-grams, and the end."""
    group, own = Group("tokens", OF_TOKENS), family.decoding.no_repeat_ngram_size
    for size in (one for one in SIZES if one != own):
        words = f"an n-gram rule of {size} tokens in place of {own or 'none'}" if size else "no n-gram rule"
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
SIZES = (0, 2, 3, 4, 5, 6, 8, 10, 12, 15, 16, 18, 19, 21, 22, 25, 30, 32, 35, 40, 50, 64)
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


SeenPositions = Callable[[Tensor, int, tuple[int, int]], Tensor]
"""Return the keys, or values, ``[B, G, S, D]`` that a step sees, the oldest first.

The arguments are the keys, the number of the prompt's tokens, and the start and end of its image.
"""


def _cut(x: Tensor, first: int, behind: int) -> Tensor:
    return torch.cat([x[:, :, :first], x[:, :, behind:]], 2)


def _last(x: Tensor, _prompt: int, _image: Any, size: int) -> Tensor:
    return x[:, :, -size:]


def _lost_in_growing(x: Tensor, prompt: int, _image: Any) -> Tensor:
    room = 256
    while room < prompt:
        room *= 2
    if x.shape[2] <= room:
        return x
    while 2 * room < x.shape[2]:
        room *= 2
    return torch.cat([0 * x[:, :, :room], x[:, :, room:]], 2)


def _first_step_lost(x: Tensor, prompt: int, _image: Any) -> Tensor:
    return _cut(x, prompt, prompt + 1) if x.shape[2] > prompt + 1 else x


SEEN: dict[str, tuple[str, SeenPositions]] = {
    "own-hidden": ("a step that does not see its own token", lambda x, prompt, image: x[:, :, :-1]),
    "not-kept": (
        "steps that are not kept in the cache: each sees the prompt and itself",
        lambda x, prompt, image: _cut(x, prompt, x.shape[2] - 1),
    ),
    "prompt-alone": ("steps that see the prompt alone", lambda x, prompt, image: x[:, :, :prompt]),
    "first-hidden": ("the prompt's first token lost from the cache", lambda x, prompt, image: x[:, :, 1:]),
    "last-of-prompt": (
        "the prompt's last token lost from the cache",
        lambda x, prompt, image: _cut(x, prompt - 1, prompt),
    ),
    "last-of-prompt-twice": (
        "the prompt's last token in the cache twice",
        lambda x, prompt, image: torch.cat([x[:, :, :prompt], x[:, :, prompt - 1 :]], 2),
    ),
    "first-alone": (
        "SDPA's is_causal with a cache, which lines up with the first key: steps see the prompt's first token alone",
        lambda x, prompt, image: x[:, :, :1],
    ),
    "first-step-lost": ("the first step lost from the cache", _first_step_lost),
    "before-lost": (
        "the step in front of each lost from the cache",
        lambda x, prompt, image: _cut(x, x.shape[2] - 2, x.shape[2] - 1),
    ),
    "no-image": ("the image's tokens lost from the cache", lambda x, prompt, image: _cut(x, *image)),
    "image-alone": (
        "the prompt's text lost from the cache",
        lambda x, prompt, image: torch.cat([x[:, :, slice(*image)], x[:, :, prompt:]], 2),
    ),
    "no-prompt": ("the prompt lost from the cache", lambda x, prompt, image: x[:, :, prompt:]),
    "room-lost": ("what was in the cache lost where its room of 256 times a power of two grows", _lost_in_growing),
    "own-alone": ("steps that see themselves alone", lambda x, prompt, image: x[:, :, -1:]),
    "empty-slot": (
        "an empty slot of the cache that is seen as well",
        lambda x, prompt, image: torch.cat([x, 0 * x[:, :, :1]], 2),
    ),
    "empty-room": (
        "all of the cache's room seen, in steps of 256 positions",
        lambda x, prompt, image: torch.cat([x, x.new_zeros(*x.shape[:2], -x.shape[2] % 256, x.shape[3])], 2),
    ),
    "own-twice": ("a step's own token in the cache twice", lambda x, prompt, image: torch.cat([x, x[:, :, -1:]], 2)),
}


def _ringed(x: Tensor, prompt: int, _image: Any, size: int) -> Tensor:
    return torch.cat([x[:, :, :prompt], x[:, :, prompt:][:, :, -size:]], 2)


def _own_late(x: Tensor, prompt: int, image: Any, size: int) -> Tensor:
    return _ringed(x[:, :, :-1] if x.shape[2] > prompt + size else x, prompt, image, size)


def _first_chunk(x: Tensor, prompt: int, image: Any, size: int, chunk: int) -> Tensor:
    return _ringed(x, min(prompt, chunk), image, size)


WINDOWS: dict[str, tuple[str, SeenPositions]] = {
    f"window-{size}": (f"a sliding window of {size} tokens in steps", partial(_last, size=size))
    for size in (64, 128, 256, 512, 1024)
}
LIKE_A_RING: dict[str, tuple[str, SeenPositions]] = {
    "ring-128": ("steps that see the prompt and the last 128 tokens", partial(_ringed, size=128))
}


def of_ring(ring: int) -> dict[str, tuple[str, SeenPositions]]:
    """Return the rows about the cache for a model with a ring: right is the prompt and the last ``ring`` tokens."""
    return {
        "all": ("full attention in place of the ring", lambda x, prompt, image: x),
        f"ring-{ring - 1}": (f"a ring of {ring - 1} tokens in place of {ring}", partial(_ringed, size=ring - 1)),
        f"ring-{ring + 1}": (
            f"a ring of {ring} tokens beside the current one, whose slot is written over too late",
            partial(_ringed, size=ring + 1),
        ),
        "own-late": (
            "steps that write over a slot of the full ring after attending, and so do not see themselves",
            partial(_own_late, size=ring),
        ),
        "end-of-prompt": (
            "the prompt's last token counted among those of the ring",
            lambda x, prompt, image: _ringed(x, prompt - 1, image, ring),
        ),
        f"window-{ring}": (f"a window of the last {ring} tokens, which drops the prompt", partial(_last, size=ring)),
        **{
            f"chunk-{chunk}": (
                f"the prompt's first {chunk} tokens alone kept, as where it is read in chunks of so many",
                partial(_first_chunk, size=ring, chunk=chunk),
            )
            for chunk in (256, 512, 1024, 2048)
        },
    }


STORED: MistakeTable = {
    **rounding("in {}"),
    "fp8": Row("in float8 (e4m3)", partial(rounded, dtype=torch.float8_e4m3fn), "fp8"),
    "int8": Row("in int8, a scale for each token and head", partial(int8, first=-1), "int8"),
}
Pair = Callable[[Target, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Change the keys and values that a step sees."""
PAIRED: dict[str, tuple[str, Pair]] = {
    "values-off": ("values one place off their keys", lambda on, k, v: (k, v.roll(1, 2))),
    "keys-for-values": ("keys in the place of values", lambda on, k, v: (k, k)),
    "values-for-keys": ("values in the place of keys", lambda on, k, v: (v, v)),
    "exchanged": ("keys and values exchanged in the cache", lambda on, k, v: (v, k)),
    "heads-off": ("the cache's heads one off", lambda on, k, v: (k.roll(1, 1), v.roll(1, 1))),
}


def _both(part: SeenPositions) -> Pair:
    return lambda on, k, v: (part(k, on.prompt.length, on.prompt.image), part(v, on.prompt.length, on.prompt.image))


def _stored(on: Target, k: Tensor, v: Tensor, store: Callable[[Tensor], Tensor], which: str) -> tuple[Tensor, Tensor]:
    return k if which == "values" else store(k), v if which == "keys" else store(v)


def _appends(on: Target, change: Pair) -> None:
    """Change the keys and values that a step rightly sees."""
    ring = on.engine.family.cache.ring
    kept: Pair = _both(partial(_ringed, size=ring)) if ring else lambda on, k, v: (k, v)
    _sees(on, lambda on, k, v: change(on, *kept(on, k, v)))


def _sees(on: Target, change: Pair) -> None:
    """Keep all keys and values, and let a step see the result of ``change``."""
    append = KVCache.append

    def changed(cache: KVCache, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        if keys.shape[2] > 1:
            return append(cache, layer, keys, values, positions)
        cache.policy = ALL_TOKENS
        return change(on, *append(cache, layer, keys, values, positions))

    on.changes.set(KVCache, "append", changed)


def _rebased(on: Target, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Move the prompt's positions on with the ring; attention depends only on the distance of two positions."""
    ring, prompt = on.engine.family.cache.ring or 0, on.prompt.length
    behind = max(0, k.shape[2] - prompt - ring)
    rope = Rope(on.core.inv_freq, torch.tensor([[behind]], device=k.device), k.dtype)
    k = torch.cat([rope.rotate(k[:, :, :prompt]), k[:, :, prompt:]], 2)
    return _ringed(k, prompt, None, ring), _ringed(v, prompt, None, ring)


def ring_kept(on: Target) -> None:
    """Keep the end of the first prompt for all later pages."""
    ring, ends, append = on.engine.family.cache.ring or 0, list[int](), Pipeline.prefill_with

    def prefill_with(self: Any, inputs: Any, features: Any, **how: Any) -> Any:
        ends.append(inputs.prompt_tokens)
        return append(self, inputs, features, **how)

    on.changes.set(Pipeline, "prefill_with", prefill_with)
    _sees(on, lambda on, k, v: (_ringed(k, ends[0], None, ring), _ringed(v, ends[0], None, ring)))


def _written_over(on: Target) -> None:
    advance = KVCache.advance
    on.changes.set(KVCache, "advance", lambda cache, new: advance(cache, new) if new > 1 else None)


Step = Callable[[Sequence[int]], Tensor]
"""Feed tokens, and return the next logits."""


def _stepping(on: Target, run: Callable[[Step, Sequence[int]], Tensor]) -> None:
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

    def fed(step: Step, tokens: Sequence[int]) -> Tensor:
        right.extend(tokens)
        return step([which(right)])

    _stepping(on, fed)


def _twice(step: Step, tokens: Sequence[int]) -> Tensor:
    step(tokens)
    return step(tokens)


def _first_again(on: Target) -> None:
    last = [on.prompt.last]

    def again(step: Step, tokens: Sequence[int]) -> Tensor:
        while last:
            step([last.pop()])
        return step(tokens)

    _stepping(on, again)


def _late(on: Target) -> None:
    assert on.prompt.logits is not None
    every = [on.prompt.logits]

    def late(step: Step, tokens: Sequence[int]) -> Tensor:
        every.append(step(tokens))
        return every[-2]

    _stepping(on, late)


def _still(on: Target) -> None:
    logits = on.prompt.logits
    assert logits is not None
    _stepping(on, lambda step, tokens: logits)


def _vision_again(on: Target) -> None:
    def seeing(step: Step, tokens: Sequence[int]) -> Tensor:
        on.core.sam_model(on.core.embed_tokens.weight.new_zeros(1, 3, 64, 64))
        return step(tokens)

    _stepping(on, seeing)
