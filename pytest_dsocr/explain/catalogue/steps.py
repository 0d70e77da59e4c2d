"""Mistakes of decode steps: positions, the cache, the token that is fed, and the policy; the prompt's pass is right.

What is planted acts once the prompt has been read. Its notes have ``prompt``, the number of the prompt's tokens,
``last``, its last token, and ``logits``, those behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.compare.signs import Sign
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.decoder import Rope
from pytest_dsocr.engine.pipeline import DecodeState, Pipeline
from pytest_dsocr.explain.catalogue.blocks import rounded, rounding
from pytest_dsocr.explain.mistake import Bench, Group
from pytest_dsocr.families import DEFAULT

SIGNS = {
    Sign.FROM_PREFILL: ("logits-late",),
    Sign.FROM_FIRST_STEP: ("positions-one-low", "cache-own-hidden", "prompt-again"),
    Sign.STANDS_STILL: ("logits-still",),
    Sign.REPETITION: ("logits-still",),
}
OF_TOKENS = {Sign.SAID_FORBIDDEN: ("size-0", "size-35"), Sign.NOT_ITS_BEST: ("size-3",), Sign.NO_END: ("eos-2",)}


def step_mistakes(prefill: Group) -> Group:
    """Make those of steps, and behind them those of the prompt's pass that may be in steps alone."""
    group = Group("steps", SIGNS)
    group.rows("positions-", POSITIONS, _positioned)
    group.rows("cache-", {key: (words, _both(seen)) for key, (words, seen) in SEEN.items()}, _appends)
    for key, (words, store) in STORED.items():
        for which, whose in (("cache", "cache"), ("keys", "cache's keys")):
            change = partial(_stored, store=store, which=which)
            group.add(f"{which}-{key}", f"the {whose} held {words}", partial(_appends, change=change))
    group.add("cache-written-over", "each step written over the one in front of it in the cache", _written_over)
    group.add("fed-late", "each step behind the first fed the token in front of the right one", _fed_late)
    group.add("prompt-again", "the prompt's last token fed once more in front of the first step", _first_again)
    group.add("logits-late", "each step's logits given a step too late", _late)
    still = partial(_stepping, run=lambda on, step, pipeline, state, tokens: on.notes["logits"])
    group.add("logits-still", "the prompt's logits given at every step", still)
    group.add("vision-again", "vision run again in every step, and its features thrown away", _vision_again)
    for one in prefill:
        if one.part != "front":
            group.add(one.id, f"{one.words}, in steps", one.plant)
    return group


def token_mistakes() -> Group:
    """Make those of the policy: how long the n-grams are that its rule forbids, and where it ends."""
    group = Group("tokens", OF_TOKENS)
    for size in SIZES:
        words = (
            f"an n-gram rule of {size} tokens in place of {DEFAULT.decoding.no_repeat_ngram_size}"
            if size
            else "no n-gram rule"
        )
        group.add(f"size-{size}", words, partial(_policy, no_repeat_ngram_size=size))
    group.add("eos-2", "another id, 2, taken for EOS", partial(_policy, eos_id=2))
    return group


def _policy(on: Bench, **how: int) -> None:
    on.changes.set(on.session, "policy", replace(on.session.policy, **how))


SIZES = (0, 2, 3, 4, 5, 8, 10, 15, 16, 18, 19, 21, 22, 25, 30, 35, 40, 50, 64)
Position = Callable[[Bench, int], float]
"""Changes the position of a step's token."""


def _image(on: Bench) -> int:
    return on.prompt_image[1] - on.prompt_image[0]


POSITIONS: dict[str, tuple[str, Position]] = {
    "one-high": ("positions of steps one too high", lambda on, at: at + 1),
    "one-low": ("positions of steps one too low", lambda on, at: at - 1),
    "still": ("every step at the position behind the prompt", lambda on, at: on.notes["prompt"]),
    "zero": ("every step at position 0", lambda on, at: 0),
    "from-zero": ("positions of steps counted from 0", lambda on, at: at - on.notes["prompt"]),
    "text": ("positions of steps that leave out the image's tokens", lambda on, at: at - _image(on)),
    "bfloat16": ("positions of steps rounded to bfloat16", lambda on, at: float(torch.tensor(float(at)).bfloat16())),
}


def _positioned(on: Bench, change: Position) -> None:
    start = Rope.__init__

    def init(rope: Rope, frequencies: Tensor, positions: Tensor, dtype: torch.dtype) -> None:
        is_step = positions.shape[1] == 1
        moved = torch.zeros_like(positions) + change(on, int(positions[0, 0])) if is_step else positions
        start(rope, frequencies, moved, dtype)
        rope.positions = positions

    on.changes.set(Rope, "__init__", init)


Seen = Callable[[Bench, Tensor], Tensor]
"""Which part of all keys, or values, ``[B, G, S, D]`` a step sees."""


def _last(on: Bench, x: Tensor, size: int) -> Tensor:
    return x[:, :, -size:]


def _lost_in_growing(on: Bench, x: Tensor) -> Tensor:
    room = 256
    while room < on.notes["prompt"]:
        room *= 2
    if x.shape[2] <= room:
        return x
    while 2 * room < x.shape[2]:
        room *= 2
    return torch.cat([0 * x[:, :, :room], x[:, :, room:]], 2)


SEEN: dict[str, tuple[str, Seen]] = {
    "own-hidden": ("a step that does not see its own token", lambda on, x: x[:, :, :-1]),
    "first-hidden": ("the prompt's first token lost from the cache", lambda on, x: x[:, :, 1:]),
    "room-lost": ("what was in the cache lost where its room of 256 times a power of two grows", _lost_in_growing),
    **{
        f"window-{size}": (f"a sliding window of {size} tokens in steps", partial(_last, size=size))
        for size in (128, 512, 1024)
    },
}


def _int8(x: Tensor) -> Tensor:
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 127
    return (x / scale).round() * scale


STORED: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    **rounding("in {}"),
    "fp8": ("in float8 (e4m3)", partial(rounded, dtype=torch.float8_e4m3fn)),
    "int8": ("in int8, a scale for each token and head", _int8),
}
Pair = Callable[[Bench, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Changes the keys and values that a step sees."""


def _both(part: Seen) -> Pair:
    return lambda on, k, v: (part(on, k), part(on, v))


def _stored(on: Bench, k: Tensor, v: Tensor, store: Callable[[Tensor], Tensor], which: str) -> tuple[Tensor, Tensor]:
    return store(k), store(v) if which == "cache" else v


def _appends(on: Bench, change: Pair) -> None:
    append = KVCache.append

    def changed(cache: KVCache, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        k, v = append(cache, layer, keys, values, positions)
        return change(on, k, v) if keys.shape[2] == 1 else (k, v)

    on.changes.set(KVCache, "append", changed)


def _written_over(on: Bench) -> None:
    advance = KVCache.advance
    on.changes.set(KVCache, "advance", lambda cache, new: advance(cache, new) if new > 1 else None)


def _stepping(on: Bench, run: Callable[..., Tensor]) -> None:
    """Run each step as ``run(on, step, pipeline, state, tokens)`` does, where ``step`` is what it was before."""
    step = Pipeline.decode_step

    def decode_step(pipeline: Pipeline[Any], state: DecodeState[Any], tokens: Any) -> Tensor:
        return run(on, step, pipeline, state, tokens)

    on.changes.set(Pipeline, "decode_step", decode_step)


def _fed_late(on: Bench) -> None:
    right = [int(on.notes["last"])]

    def fed(on: Bench, step: Any, pipeline: Any, state: Any, tokens: Any) -> Tensor:
        right.extend(tokens)
        out: Tensor = step(pipeline, state, [right[-2] if len(right) > 2 else right[-1]])
        return out

    _stepping(on, fed)


def _first_again(on: Bench) -> None:
    last = [int(on.notes["last"])]

    def again(on: Bench, step: Any, pipeline: Any, state: Any, tokens: Any) -> Tensor:
        while last:
            step(pipeline, state, [last.pop()])
        out: Tensor = step(pipeline, state, tokens)
        return out

    _stepping(on, again)


def _late(on: Bench) -> None:
    every: list[Tensor] = [on.notes["logits"]]

    def late(on: Bench, step: Any, pipeline: Any, state: Any, tokens: Any) -> Tensor:
        every.append(step(pipeline, state, tokens))
        return every[-2]

    _stepping(on, late)


def _vision_again(on: Bench) -> None:
    def seeing(on: Bench, step: Any, pipeline: Any, state: Any, tokens: Any) -> Tensor:
        on.core.sam_model(state.last_embeds.new_zeros(1, 3, 64, 64))
        out: Tensor = step(pipeline, state, tokens)
        return out

    _stepping(on, seeing)
