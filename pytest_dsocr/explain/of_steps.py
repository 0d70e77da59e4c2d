"""What-ifs of decode steps: positions, the cache, and the token that is fed; the prompt's own pass is right."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.pipeline import DecodeState, Pipeline
from pytest_dsocr.explain.families import VISION_AND_PREFILL
from pytest_dsocr.explain.family import Bench, Family

STEPS = Family("steps")
"""What is planted acts once the prompt has been read: its notes have ``prompt``, the number of the prompt's tokens."""

Position = Callable[[Bench, int], float]
"""Changes the position of a step's token."""
POSITIONS: dict[str, tuple[str, Position]] = {
    "one-high": ("positions of steps one too high", lambda on, at: at + 1),
    "one-low": ("positions of steps one too low", lambda on, at: at - 1),
    "still": ("every step at the position behind the prompt", lambda on, at: on.notes["prompt"]),
    "still-low": ("every step at the position of the prompt's last token", lambda on, at: on.notes["prompt"] - 1),
    "zero": ("every step at position 0", lambda on, at: 0),
    "from-zero": ("positions of steps counted from 0", lambda on, at: at - on.notes["prompt"]),
    "from-one": ("positions of steps counted from 1", lambda on, at: at - on.notes["prompt"] + 1),
    "text": ("positions of steps that leave out the image's tokens", lambda on, at: at - _image_tokens(on)),
    "text-one": ("positions of steps that count the image as one token", lambda on, at: at - _image_tokens(on) + 1),
    "double": ("two positions for each step", lambda on, at: 2 * at - on.notes["prompt"]),
    "image-twice": ("positions of steps that count the image's tokens twice", lambda on, at: at + _image_tokens(on)),
    "bfloat16": ("positions of steps rounded to bfloat16", lambda on, at: float(torch.tensor(float(at)).bfloat16())),
    "float16": ("positions of steps rounded to float16", lambda on, at: float(torch.tensor(float(at)).half())),
    "two-high": ("positions of steps two too high", lambda on, at: at + 2),
    "capped": ("positions of steps that end at 1023", lambda on, at: min(at, 1023)),
}


def _image_tokens(on: Bench) -> int:
    return on.prompt_image[1] - on.prompt_image[0]


def _positioned(on: Bench, change: Position) -> None:
    from pytest_dsocr.engine.decoder import Rope

    start = Rope.__init__

    def init(rope: Rope, frequencies: Tensor, positions: Tensor, dtype: torch.dtype) -> None:
        moved = (
            positions if positions.shape[1] > 1 else torch.full_like(positions, 0) + change(on, int(positions[0, 0]))
        )
        start(rope, frequencies, moved, dtype)
        rope.positions = positions

    on.changes.set(Rope, "__init__", init)


Seen = Callable[[Bench, Tensor], Tensor]
"""Which part of all keys, or values, ``[B, G, S, D]`` a step sees."""


def _cut(on: Bench, x: Tensor, first: int, behind: int) -> Tensor:
    return torch.cat([x[:, :, :first], x[:, :, behind:]], 2)


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).to(x.dtype)


def _int8(x: Tensor) -> Tensor:
    scale = x.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 127
    return (x / scale).round() * scale


def _lost_in_growing(on: Bench, x: Tensor) -> Tensor:
    room = 256
    while room < on.notes["prompt"]:
        room *= 2
    if x.shape[2] <= room:
        return x
    while 2 * room < x.shape[2]:
        room *= 2
    return torch.cat([0 * x[:, :, :room], x[:, :, room:]], 2)


def _last(on: Bench, x: Tensor, size: int) -> Tensor:
    return x[:, :, -size:]


SEEN: dict[str, tuple[str, Seen]] = {
    "own-hidden": ("a step that does not see its own token", lambda on, x: x[:, :, :-1]),
    "not-kept": (
        "steps that are not kept in the cache: each sees the prompt and itself",
        lambda on, x: _cut(on, x, on.notes["prompt"], x.shape[2] - 1),
    ),
    "prompt-alone": ("steps that see the prompt alone", lambda on, x: x[:, :, : on.notes["prompt"]]),
    "first-hidden": ("the prompt's first token lost from the cache", lambda on, x: x[:, :, 1:]),
    "last-of-prompt": (
        "the prompt's last token lost from the cache",
        lambda on, x: _cut(on, x, on.notes["prompt"] - 1, on.notes["prompt"]),
    ),
    "last-of-prompt-twice": (
        "the prompt's last token in the cache twice",
        lambda on, x: torch.cat([x[:, :, : on.notes["prompt"]], x[:, :, on.notes["prompt"] - 1 :]], 2),
    ),
    "first-step-lost": (
        "the first step lost from the cache",
        lambda on, x: (
            _cut(on, x, on.notes["prompt"], on.notes["prompt"] + 1) if x.shape[2] > on.notes["prompt"] + 1 else x
        ),
    ),
    "before-lost": (
        "the step in front of each lost from the cache",
        lambda on, x: _cut(on, x, x.shape[2] - 2, x.shape[2] - 1),
    ),
    "no-image": ("the image's tokens lost from the cache", lambda on, x: _cut(on, x, *on.prompt_image)),
    "image-alone": (
        "the prompt's text lost from the cache",
        lambda on, x: torch.cat([x[:, :, slice(*on.prompt_image)], x[:, :, on.notes["prompt"] :]], 2),
    ),
    "no-prompt": ("the prompt lost from the cache", lambda on, x: x[:, :, on.notes["prompt"] :]),
    "room-lost": ("what was in the cache lost where its room of 256 times a power of two grows", _lost_in_growing),
    "own-alone": ("steps that see themselves alone", lambda on, x: x[:, :, -1:]),
    "empty-slot": ("an empty slot of the cache that is seen as well", lambda on, x: torch.cat([x, 0 * x[:, :, :1]], 2)),
    "empty-room": (
        "all of the cache's room seen, in steps of 256 positions",
        lambda on, x: torch.cat([x, x.new_zeros(*x.shape[:2], -x.shape[2] % 256, x.shape[3])], 2),
    ),
    "own-twice": ("a step's own token in the cache twice", lambda on, x: torch.cat([x, x[:, :, -1:]], 2)),
    **{
        f"window-{size}": (f"a sliding window of {size} tokens in steps", partial(_last, size=size))
        for size in (64, 128, 256, 512, 1024)
    },
    "ring-128": (
        "steps that see the prompt and the last 128 tokens",
        lambda on, x: torch.cat([x[:, :, : on.notes["prompt"]], x[:, :, on.notes["prompt"] :][:, :, -128:]], 2),
    ),
}
HELD: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "bfloat16": ("in bfloat16", partial(_rounded, dtype=torch.bfloat16)),
    "float16": ("in float16", partial(_rounded, dtype=torch.float16)),
    "fp8": ("in float8 (e4m3)", partial(_rounded, dtype=torch.float8_e4m3fn)),
    "int8": ("in int8, a scale for each token and head", _int8),
}
Held = Callable[[Bench, Tensor, Tensor], tuple[Tensor, Tensor]]


def _appends(on: Bench, change: Held) -> None:
    append = KVCache.append

    def changed(cache: KVCache, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        k, v = append(cache, layer, keys, values, positions)
        return change(on, k, v) if keys.shape[2] == 1 else (k, v)

    on.changes.set(KVCache, "append", changed)


def _held_as(
    on: Bench, k: Tensor, v: Tensor, held: Callable[[Tensor], Tensor], keys: bool, values: bool
) -> tuple[Tensor, Tensor]:
    return held(k) if keys else k, held(v) if values else v


def _both(part: Seen) -> Held:
    return lambda on, k, v: (part(on, k), part(on, v))


PAIRED: dict[str, tuple[str, Held]] = {
    "values-off": ("values one place off their keys", lambda on, k, v: (k, v.roll(1, 2))),
    "keys-for-values": ("keys in the place of values", lambda on, k, v: (k, k)),
    "values-for-keys": ("values in the place of keys", lambda on, k, v: (v, v)),
    "exchanged": ("keys and values exchanged in the cache", lambda on, k, v: (v, k)),
    "heads-off": ("the cache's heads one off", lambda on, k, v: (k.roll(1, 1), v.roll(1, 1))),
    "own-value-zero": (
        "a step's own value left at zero",
        lambda on, k, v: (k, torch.cat([v[:, :, :-1], 0 * v[:, :, -1:]], 2)),
    ),
    "own-key-zero": (
        "a step's own key left at zero",
        lambda on, k, v: (torch.cat([k[:, :, :-1], 0 * k[:, :, -1:]], 2), v),
    ),
    "order": ("the cache's positions in another order for keys than for values", lambda on, k, v: (k, v.flip(2))),
}

for _key, (_words, _change) in POSITIONS.items():
    STEPS.add(f"positions-{_key}", _words, partial(_positioned, change=_change))
for _key, (_words, _seen) in SEEN.items():
    STEPS.add(f"cache-{_key}", _words, partial(_appends, change=_both(_seen)))
for _key, (_words, _held) in HELD.items():
    for _which in ("cache", "keys", "values"):
        _whose = "cache" if _which == "cache" else f"cache's {_which}"
        _change_of = partial(_held_as, held=_held, keys=_which != "values", values=_which != "keys")
        STEPS.add(f"{_which}-{_key}", f"the {_whose} held {_words}", partial(_appends, change=_change_of))
for _key, (_words, _pair) in PAIRED.items():
    STEPS.add(f"cache-{_key}", _words, partial(_appends, change=_pair))

Fed = Callable[[Pipeline[Any], DecodeState[Any], list[int]], None]


def _feeds(on: Bench, which: Callable[[list[int]], int]) -> None:
    step = Pipeline.decode_step
    heard: list[int] = [int(on.notes["last"])]

    def decode_step(pipeline: Pipeline[Any], state: DecodeState[Any], tokens: Any) -> Tensor:
        heard.extend(tokens)
        return step(pipeline, state, [which(heard)])

    on.changes.set(Pipeline, "decode_step", decode_step)


def _twice(on: Bench) -> None:
    step = Pipeline.decode_step

    def decode_step(pipeline: Pipeline[Any], state: DecodeState[Any], tokens: Any) -> Tensor:
        step(pipeline, state, tokens)
        return step(pipeline, state, tokens)

    on.changes.set(Pipeline, "decode_step", decode_step)


def _first_again(on: Bench) -> None:
    step, begun = Pipeline.decode_step, [False]

    def decode_step(pipeline: Pipeline[Any], state: DecodeState[Any], tokens: Any) -> Tensor:
        if not begun[0]:
            begun[0] = True
            step(pipeline, state, [int(on.notes["last"])])
        return step(pipeline, state, tokens)

    on.changes.set(Pipeline, "decode_step", decode_step)


def _late(on: Bench, by: int) -> None:
    """Give the logits of an earlier step."""
    step = Pipeline.decode_step
    given: list[Tensor] = [on.notes["logits"]]

    def decode_step(pipeline: Pipeline[Any], state: DecodeState[Any], tokens: Any) -> Tensor:
        given.append(step(pipeline, state, tokens))
        return given[max(0, len(given) - 1 - by)]

    on.changes.set(Pipeline, "decode_step", decode_step)


def _still(on: Bench) -> None:
    on.changes.set(Pipeline, "decode_step", lambda pipeline, state, tokens: on.notes["logits"])


STEPS.add(
    "fed-before", "each step fed the token in front of the right one", partial(_feeds, which=lambda heard: heard[-2])
)
STEPS.add(
    "fed-late",
    "each step behind the first fed the token in front of the right one",
    partial(_feeds, which=lambda heard: heard[-2] if len(heard) > 2 else heard[-1]),
)
STEPS.add("fed-bos", "each step fed BOS", partial(_feeds, which=lambda heard: 0))
STEPS.add("fed-last", "each step fed the prompt's last token", partial(_feeds, which=lambda heard: heard[0]))
STEPS.add("fed-first", "each step fed the first token", partial(_feeds, which=lambda heard: heard[1]))
STEPS.add("fed-twice", "each token fed twice", _twice)
STEPS.add("prompt-again", "the prompt's last token fed once more in front of the first step", _first_again)
STEPS.add("logits-late", "each step's logits given a step too late", partial(_late, by=1))
STEPS.add("logits-still", "the prompt's logits given at every step", _still)
STEPS.add(
    "logits-bfloat16",
    "logits of steps rounded to bfloat16",
    lambda on: on.changes.around(on.model.lm_head, lambda run, x: run(x).bfloat16().float()),
)
for _one in [one for one in VISION_AND_PREFILL["prefill"] if one.part != "front"]:
    STEPS.add(_one.id, f"{_one.words}, in steps", _one.plant)
