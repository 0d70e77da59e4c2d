"""Mistakes in the keys and values that a step sees."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.explain.catalogue.blocks import rounded, rounding
from pytest_dsocr.explain.catalogue.numbers import int8
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row
from pytest_dsocr.layers.cache import ALL_TOKENS, KVCache
from pytest_dsocr.layers.rotary import Rope


def add_cache(group: Group, ring: int | None) -> None:
    """Add the mistakes of the cache to those of steps; ``ring`` is the number of tokens that a ring keeps."""
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
