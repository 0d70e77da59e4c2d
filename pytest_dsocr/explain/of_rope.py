"""What-ifs of the decoder's rotary positions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.engine import decoder
from pytest_dsocr.engine.decoder import Rope
from pytest_dsocr.explain.family import Bench
from pytest_dsocr.explain.of_decoder import PREFILL

Rotate = Callable[[Rope, Tensor], Tensor]


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def _interleaved(rope: Rope, x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    cos, sin = (part[..., :half].repeat_interleave(2, -1) for part in (rope.cos, rope.sin))
    turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * cos + turned * sin


def _deinterleaved(rope: Rope, x: Tensor) -> Tensor:
    x = x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)
    return _turn(x, rope.cos, rope.sin)


def _partly(rope: Rope, x: Tensor, share: float, behind: bool = False) -> Tensor:
    width = int(x.shape[-1] * share)
    turned = x[..., -width:] if behind else x[..., :width]
    half = x.shape[-1] // 2
    keep = width // 2
    cos, sin = (torch.cat([part[..., :keep], part[..., half : half + keep]], -1) for part in (rope.cos, rope.sin))
    out = _turn(turned, cos, sin)
    return torch.cat([x[..., :-width], out] if behind else [out, x[..., width:]], -1)


ROTATIONS: dict[str, tuple[str, Rotate]] = {
    "interleaved": ("rotary positions that pair neighbouring channels", _interleaved),
    "deinterleaved": (
        "queries and keys brought from pairs into halves in front of the rotary positions",
        _deinterleaved,
    ),
    "backwards": ("rotary positions turned the other way", lambda rope, x: _turn(x, rope.cos, -rope.sin)),
    "missing": ("no rotary positions", lambda rope, x: x),
    "half": ("rotary positions for the first half of the channels alone", partial(_partly, share=0.5)),
    "half-behind": (
        "rotary positions for the last half of the channels alone",
        partial(_partly, share=0.5, behind=True),
    ),
    "quarter": ("rotary positions for a quarter of the channels alone", partial(_partly, share=0.25)),
    "no-minus": (
        "rotary positions without the minus",
        lambda rope, x: x * rope.cos + torch.cat([x.chunk(2, -1)[1], x.chunk(2, -1)[0]], -1) * rope.sin,
    ),
    "cos-sin": ("cosine and sine exchanged in the rotary positions", lambda rope, x: _turn(x, rope.sin, rope.cos)),
    "bfloat16": (
        "cosine and sine rounded to bfloat16",
        lambda rope, x: _turn(x, rope.cos.bfloat16().to(x.dtype), rope.sin.bfloat16().to(x.dtype)),
    ),
    "float16": (
        "cosine and sine rounded to float16",
        lambda rope, x: _turn(x, rope.cos.half().to(x.dtype), rope.sin.half().to(x.dtype)),
    ),
    "twice": (
        "rotary positions applied twice",
        lambda rope, x: _turn(_turn(x, rope.cos, rope.sin), rope.cos, rope.sin),
    ),
}


def _rotates(on: Bench, rotate: Rotate) -> None:
    on.changes.set(Rope, "rotate", rotate)


def _one_side(on: Bench, side: str) -> None:
    turn, turns = Rope.rotate, [0]

    def rotate(rope: Rope, x: Tensor) -> Tensor:
        turns[0] += 1
        is_query = turns[0] % 2 == 1
        return x if is_query == (side == "queries") else turn(rope, x)

    on.changes.set(Rope, "rotate", rotate)


def _values_too(on: Bench) -> None:
    def forward(self: Any, x: Tensor, rope: Rope, cache: Any) -> Tensor:
        q, k, v = (rope.rotate(self._heads(part(x))) for part in (self.q_proj, self.k_proj, self.v_proj))
        keys, values = cache.append(self.layer, k, v, rope.positions)
        out: Tensor = self.o_proj(self.attend(q, keys, values, None).transpose(1, 2).flatten(2))
        return out

    on.changes.set(decoder.Attention, "forward", forward)


Positions = Callable[[Bench, Tensor], Tensor]
"""Changes the positions ``[B, T]``."""


def _positioned(on: Bench, change: Positions) -> None:
    start = Rope.__init__

    def init(rope: Rope, frequencies: Tensor, positions: Tensor, dtype: torch.dtype) -> None:
        start(rope, frequencies, change(on, positions), dtype)
        rope.positions = positions

    on.changes.set(Rope, "__init__", init)


def _frequencies(on: Bench, change: Callable[[Tensor], Tensor]) -> None:
    core = on.model.model
    on.changes.set(core, "inv_freq", change(core.inv_freq))


def _theta(frequencies: Tensor, theta: float) -> Tensor:
    exponents = torch.arange(len(frequencies), device=frequencies.device).float() / len(frequencies)
    return (1.0 / theta**exponents).to(frequencies.dtype)


def _one_place(on: Bench, at: Tensor) -> Tensor:
    first, behind = on.prompt_image
    return torch.where(at < first, at, torch.where(at < behind, first, at - (behind - first) + 1))


def _text_only(on: Bench, at: Tensor) -> Tensor:
    first, behind = on.prompt_image
    return torch.where(at < first, at, torch.where(at < behind, at - first, at - (behind - first)))


POSITIONS: dict[str, tuple[str, Positions]] = {
    "image-shares": ("one position for all image tokens", _one_place),
    "text-apart": ("positions that count text and image tokens apart", _text_only),
    "text-from-image": (
        "positions of the text that begin again behind the image",
        lambda on, at: torch.where(at < on.prompt_image[1], at, at - on.prompt_image[1]),
    ),
    "text-one-late": ("positions one too high behind the image", lambda on, at: at + (at >= on.prompt_image[1]).long()),
    "text-one-early": ("positions one too low behind the image", lambda on, at: at - (at >= on.prompt_image[1]).long()),
    "image-one-late": (
        "positions one too high from the image on",
        lambda on, at: at + (at >= on.prompt_image[0]).long(),
    ),
    "first-again": ("positions that begin at 0 twice", lambda on, at: (at - 1).clamp_min(0)),
    "backwards": ("positions counted down", lambda on, at: at.max() - at),
    "none": ("position 0 everywhere", lambda on, at: 0 * at),
    "doubled": ("positions doubled", lambda on, at: 2 * at),
    "halved": ("positions halved", lambda on, at: at / 2),
    "quartered": ("positions divided by four", lambda on, at: at / 4),
    "bfloat16": ("positions rounded to bfloat16", lambda on, at: at.bfloat16().float()),
    "float16": ("positions rounded to float16", lambda on, at: at.half().float()),
    "capped-512": ("positions that end at 511", lambda on, at: at.clamp_max(511)),
    "capped-1024": ("positions that end at 1023", lambda on, at: at.clamp_max(1023)),
}
for _key, (_words, _rotate) in list(ROTATIONS.items())[:4]:
    PREFILL.add(f"rope-{_key}", _words, partial(_rotates, rotate=_rotate))
for _value in (
    500_000.0,
    1_000_000.0,
    5_000_000.0,
    100_000.0,
    50_000.0,
    1_000.0,
    10_000_000.0,
    20_000.0,
    8_000.0,
    150_000.0,
):
    PREFILL.add(
        f"theta-{_value:g}",
        f"a rotary base of {_value:g} in place of 10000",
        partial(_frequencies, change=partial(_theta, theta=_value)),
    )
for _key, (_words, _change) in POSITIONS.items():
    PREFILL.add(f"positions-{_key}", _words, partial(_positioned, change=_change))
for _key, (_words, _rotate) in list(ROTATIONS.items())[4:]:
    PREFILL.add(f"rope-{_key}", _words, partial(_rotates, rotate=_rotate))
PREFILL.add("rope-values", "rotary positions on values as well", _values_too)
for _side in ("queries", "keys"):
    PREFILL.add(f"rope-no-{_side}", f"no rotary positions on {_side}", partial(_one_side, side=_side))
FREQUENCIES: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "bfloat16": ("rotary frequencies rounded to bfloat16", lambda f: f.bfloat16().to(f.dtype)),
    "float16": ("rotary frequencies rounded to float16", lambda f: f.half().to(f.dtype)),
    "one-on": ("rotary frequencies that begin with the second", lambda f: f * f[1]),
    "doubled": ("rotary frequencies of two channels each step", lambda f: f**2),
    "width": ("rotary frequencies over half of the channels' number", lambda f: f**0.5),
}
for _key, (_words, _of) in FREQUENCIES.items():
    PREFILL.add(f"frequencies-{_key}", _words, partial(_frequencies, change=_of))
