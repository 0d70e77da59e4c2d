"""Mistakes of the decoder's rotary positions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.explain.catalogue.blocks import TensorChange, rounding
from pytest_dsocr.explain.mistake import Target, home_of
from pytest_dsocr.explain.rows import Group, MistakeTable, Row
from pytest_dsocr.layers.decoder import DecoderAttention
from pytest_dsocr.layers.rotary import Rope, Rotary

THETAS = (5e5, 1e6, 5e6, 1e5, 5e4, 1e3, 1e7, 1.5e5)


def add_rotary(group: Group) -> None:
    """Add the mistakes of rotary positions to the decoder's."""
    add_rotations(group, 1e4)
    group.add("rope-values", "rotary positions on values as well", _values_too, kind="rope")
    group.rows("positions", POSITIONS, positioned)


def add_rotations(group: Group, own: float) -> None:
    """Add the mistakes of the rotation in a stage; ``own`` is its base."""
    stage = group.stage
    group.rows("rope", ROTATIONS, partial(_rotates, stage))
    for side in ("queries", "keys"):
        plant = partial(_one_side, stage=stage, side=side)
        group.add(f"rope-no-{side}", f"no rotary positions on {side}", plant, kind="rope")
    thetas = {f"{theta:g}": (f"{theta:g}", theta) for theta in (1e4, *THETAS) if theta != own}
    group.rows("theta", thetas, partial(_theta, stage), words=f"a rotary base of {{}} in place of {own:.0f}")
    group.rows("frequencies", FREQUENCIES, partial(_frequencies, stage))


Rotate = Callable[[Rope, Tensor], Tensor]


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def _interleaved(rope: Rope, x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    cos, sin = (part[..., :half].repeat_interleave(2, -1) for part in (rope.cos, rope.sin))
    turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * cos + turned * sin


def _turn_changed(rope: Rope, x: Tensor, change: TensorChange) -> Tensor:
    return _turn(x, change(rope.cos), change(rope.sin))


def _partly(rope: Rope, x: Tensor, share: float, behind: bool = False) -> Tensor:
    width, half = int(x.shape[-1] * share), x.shape[-1] // 2
    keep = width // 2
    cos, sin = (torch.cat([part[..., :keep], part[..., half : half + keep]], -1) for part in (rope.cos, rope.sin))
    out = _turn(x[..., -width:] if behind else x[..., :width], cos, sin)
    return torch.cat([x[..., :-width], out] if behind else [out, x[..., width:]], -1)


ROTATIONS: MistakeTable = {
    "interleaved": ("rotary positions that pair neighbouring channels", _interleaved),
    "deinterleaved": (
        "queries and keys brought from pairs into halves in front of the rotary positions",
        lambda rope, x: _turn(x.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2), rope.cos, rope.sin),
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
        lambda rope, x: x * rope.cos + x.roll(x.shape[-1] // 2, -1) * rope.sin,
    ),
    "cos-sin": ("cosine and sine exchanged in the rotary positions", lambda rope, x: _turn(x, rope.sin, rope.cos)),
    **rounding("cosine and sine rounded to {}", lambda change: partial(_turn_changed, change=change)),
    "twice": (
        "rotary positions applied twice",
        lambda rope, x: _turn(_turn(x, rope.cos, rope.sin), rope.cos, rope.sin),
    ),
}


def _home(on: Target, stage: str) -> Any:
    """Return the module with the frequencies of a stage."""
    return home_of(on.engine, stage)[0]


def _rotates(stage: str, on: Target, rotate: Rotate) -> None:
    turn, home = Rope.rotate, _home(on, stage)
    others = [one for one in on.model.modules() if isinstance(one, Rotary) and one is not home]

    def turned(rope: Rope, x: Tensor) -> Tensor:
        is_of_another = any(rope.inverse_frequencies is one.inv_freq for one in others)
        return turn(rope, x) if is_of_another else rotate(rope, x)

    on.changes.set(Rope, "rotate", turned)


def _one_side(on: Target, stage: str, side: str) -> None:
    turn, turns = Rope.rotate, [0]

    def rotate(rope: Rope, x: Tensor) -> Tensor:
        turns[0] += 1
        is_query = turns[0] % 2 == 1
        return x if is_query == (side == "queries") else turn(rope, x)

    _rotates(stage, on, rotate)


def _values_too(on: Target) -> None:
    def forward(self: Any, x: Tensor, rope: Rope, cache: Any) -> Tensor:
        q, k, v = (rope.rotate(self.split_heads(part(x))) for part in (self.q_proj, self.k_proj, self.v_proj))
        keys, values = cache.append(self.layer, k, v, rope.positions)
        out: Tensor = self.o_proj(self.attend(q, keys, values, None).transpose(1, 2).flatten(2))
        return out

    on.changes.set(DecoderAttention, "forward", forward)


Positions = Callable[[Target, Tensor], Tensor]
"""Change the positions ``[B, T]``."""


def _counted(on: Target, at: Tensor, in_image: Callable[[Tensor, int], Any], tokens: int) -> Tensor:
    """Count the image as ``tokens`` positions, with the positions ``in_image`` inside."""
    first, behind = on.prompt.image
    return torch.where(at < first, at, torch.where(at < behind, in_image(at, first), at - (behind - first) + tokens))


POSITIONS: MistakeTable = {
    "image-shares": (
        "one position for all image tokens",
        partial(_counted, in_image=lambda at, first: first, tokens=1),
    ),
    "text-apart": (
        "positions that count text and image tokens apart",
        partial(_counted, in_image=lambda at, first: at - first, tokens=0),
    ),
    "text-from-image": (
        "positions of the text that begin again behind the image",
        lambda on, at: torch.where(at < on.prompt.image[1], at, at - on.prompt.image[1]),
    ),
    "text-one-late": ("positions one too high behind the image", lambda on, at: at + (at >= on.prompt.image[1])),
    "text-one-early": ("positions one too low behind the image", lambda on, at: at - (at >= on.prompt.image[1]).long()),
    "image-one-late": ("positions one too high from the image on", lambda on, at: at + (at >= on.prompt.image[0])),
    "first-again": ("positions that begin at 0 twice", lambda on, at: (at - 1).clamp_min(0)),
    "none": ("position 0 everywhere", lambda on, at: 0 * at),
    "doubled": ("positions doubled", lambda on, at: 2 * at),
    "halved": ("positions halved", lambda on, at: at / 2),
    "quartered": ("positions divided by four", lambda on, at: at / 4),
    "bfloat16": Row("positions rounded to bfloat16", lambda on, at: at.bfloat16().float(), "bfloat16"),
    "float16": Row("positions rounded to float16", lambda on, at: at.half().float(), "float16"),
    "capped-512": ("positions that end at 511", lambda on, at: at.clamp_max(511)),
    "capped-1024": ("positions that end at 1023", lambda on, at: at.clamp_max(1023)),
}
FREQUENCIES: MistakeTable = {
    **rounding("rotary frequencies rounded to {}"),
    "one-on": ("rotary frequencies that begin with the second", lambda f: f * f[1]),
    "doubled": ("rotary frequencies of two channels each step", lambda f: f**2),
    "width": ("rotary frequencies over half of the channels' number", lambda f: f**0.5),
}


def positioned(on: Target, change: Positions) -> None:
    """Turn by changed positions, and leave the cache's as they are."""
    start = Rope.__init__

    def init(rope: Rope, frequencies: Tensor, positions: Tensor, dtype: torch.dtype) -> None:
        start(rope, frequencies, change(on, positions), dtype)
        rope.positions = positions

    on.changes.set(Rope, "__init__", init)


def _frequencies(stage: str, on: Target, change: TensorChange) -> None:
    home = _home(on, stage)
    on.changes.set(home, "inv_freq", change(home.inv_freq))


def _theta(stage: str, on: Target, theta: float) -> None:
    home = _home(on, stage)
    own = home.inv_freq
    exponents = torch.arange(len(own), device=own.device).float() / len(own)
    on.changes.set(home, "inv_freq", (1.0 / theta**exponents).to(own.dtype))
