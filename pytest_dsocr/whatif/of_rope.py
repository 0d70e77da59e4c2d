"""What-ifs of the decoder's rotary positions and of its experts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import decoder, experts
from pytest_dsocr.engine.decoder import Rope
from pytest_dsocr.whatif.family import Bench
from pytest_dsocr.whatif.of_decoder import PREFILL

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
        return self.o_proj(self.attend(q, keys, values, None).transpose(1, 2).flatten(2))

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

Route = Callable[[Any, Tensor], tuple[Tensor, Tensor]]


def _scores(router: Any, x: Tensor) -> Tensor:
    return F.linear(x.float(), router.weight.float())


def _chosen(scores: Tensor, count: int, **how: Any) -> tuple[Tensor, Tensor]:
    weights, chosen = torch.topk(scores, count, dim=-1, sorted=False, **how)
    return chosen, weights


def _normalised(found: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    chosen, weights = found
    return chosen, weights / (weights.sum(-1, keepdim=True) + 1e-20)


def _times(found: tuple[Tensor, Tensor], by: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    return found[0], by(found[1])


def _usual(router: Any, x: Tensor) -> tuple[Tensor, Tensor]:
    return _chosen(_scores(router, x).softmax(-1), router.experts_per_token)


def _next_expert(found: tuple[Tensor, Tensor], count: int, by: int) -> tuple[Tensor, Tensor]:
    return (found[0] + by) % count, found[1]


ROUTES: dict[str, tuple[str, Route]] = {
    "normalised": (
        "the chosen experts' weights made to sum to one (or a softmax over the chosen alone)",
        lambda r, x: _normalised(_usual(r, x)),
    ),
    "sigmoid": (
        "a sigmoid in place of the softmax over experts",
        lambda r, x: _chosen(_scores(r, x).sigmoid(), r.experts_per_token),
    ),
    "sigmoid-normalised": (
        "a sigmoid in place of the softmax over experts, made to sum to one",
        lambda r, x: _normalised(_chosen(_scores(r, x).sigmoid(), r.experts_per_token)),
    ),
    "one-fewer": (
        "one expert fewer for each token",
        lambda r, x: _chosen(_scores(r, x).softmax(-1), r.experts_per_token - 1),
    ),
    "one-more": (
        "one expert more for each token",
        lambda r, x: _chosen(_scores(r, x).softmax(-1), r.experts_per_token + 1),
    ),
    "one": ("one expert for each token", lambda r, x: _chosen(_scores(r, x).softmax(-1), 1)),
    "all": ("all experts for each token", lambda r, x: _chosen(_scores(r, x).softmax(-1), r.weight.shape[0])),
    "equal": (
        "equal weights for the chosen experts",
        lambda r, x: _times(_usual(r, x), lambda w: torch.full_like(w, 1 / w.shape[-1])),
    ),
    "ones": ("the chosen experts added without weights", lambda r, x: _times(_usual(r, x), torch.ones_like)),
    "logits": (
        "the router's scores as weights, without a softmax",
        lambda r, x: _chosen(_scores(r, x), r.experts_per_token),
    ),
    "exchanged": (
        "the chosen experts' weights in another order than the experts",
        lambda r, x: _times(_usual(r, x), lambda w: w.flip(-1)),
    ),
    "least": (
        "the experts of the lowest scores",
        lambda r, x: _chosen(_scores(r, x).softmax(-1), r.experts_per_token, largest=False),
    ),
    "next": ("each expert's next one in its place", lambda r, x: _next_expert(_usual(r, x), r.weight.shape[0], 1)),
    "before": (
        "the expert in front of each in its place",
        lambda r, x: _next_expert(_usual(r, x), r.weight.shape[0], -1),
    ),
    "reversed": (
        "experts counted from the end",
        lambda r, x: (r.weight.shape[0] - 1 - _usual(r, x)[0], _usual(r, x)[1]),
    ),
    "bfloat16": (
        "a router in bfloat16",
        lambda r, x: _chosen(F.linear(x.bfloat16(), r.weight.bfloat16()).float().softmax(-1), r.experts_per_token),
    ),
    "float16": (
        "a router in float16",
        lambda r, x: _chosen(F.linear(x.half(), r.weight.half()).float().softmax(-1), r.experts_per_token),
    ),
    "weights-bfloat16": (
        "the experts' weights rounded to bfloat16",
        lambda r, x: _times(_usual(r, x), lambda w: w.bfloat16().float()),
    ),
    "squared": ("the experts' weights applied twice", lambda r, x: _times(_usual(r, x), torch.square)),
    **{
        f"times-{by:g}": (
            f"routed experts multiplied by {by:g}",
            lambda r, x, by=by: _times(_usual(r, x), lambda w: w * by),
        )
        for by in (2.5, 16.0, 2.0, 0.5)
    },
}


def _routes(on: Bench, route: Route) -> None:
    for router in on.modules(experts.Router):
        on.changes.forward(router, partial(route, router))


def _shared(on: Bench, change: Callable[[Tensor], Tensor]) -> None:
    for mixture in on.modules(experts.MixtureOfExperts):
        on.changes.around(mixture.shared_experts, lambda run, x: change(run(x)))


def _mlp(on: Bench, run: Callable[[Any, Tensor], Tensor]) -> None:
    for mlp in on.modules(experts.Mlp):
        on.changes.forward(mlp, partial(run, mlp))


for _key, (_words, _route) in ROUTES.items():
    PREFILL.add(f"experts-{_key}", _words, partial(_routes, route=_route))
PREFILL.add("no-shared", "no shared experts", partial(_shared, change=lambda x: 0 * x))
PREFILL.add("shared-halved", "shared experts averaged, not added", partial(_shared, change=lambda x: x / 2))
PREFILL.add("shared-twice", "shared experts added twice", partial(_shared, change=lambda x: 2 * x))
PREFILL.add(
    "no-routed", "no routed experts", partial(_routes, route=lambda r, x: _times(_usual(r, x), lambda w: 0 * w))
)
MLPS: dict[str, tuple[str, Callable[[Any, Tensor], Tensor]]] = {
    "exchanged": ("gate and up exchanged", lambda m, x: m.down_proj(m.gate_proj(x) * F.silu(m.up_proj(x)))),
    "gelu": ("GELU in place of SiLU", lambda m, x: m.down_proj(F.gelu(m.gate_proj(x)) * m.up_proj(x))),
    "gelu-tanh": (
        "the GELU approximated by tanh in place of SiLU",
        lambda m, x: m.down_proj(F.gelu(m.gate_proj(x), approximate="tanh") * m.up_proj(x)),
    ),
    "relu": ("ReLU in place of SiLU", lambda m, x: m.down_proj(F.relu(m.gate_proj(x)) * m.up_proj(x))),
    "sigmoid": ("a sigmoid in place of SiLU", lambda m, x: m.down_proj(m.gate_proj(x).sigmoid() * m.up_proj(x))),
    "quick": (
        "the quick GELU in place of SiLU",
        lambda m, x: m.down_proj((g := m.gate_proj(x)) * torch.sigmoid(1.702 * g) * m.up_proj(x)),
    ),
    "no-gate": ("no gate", lambda m, x: m.down_proj(m.up_proj(x))),
    "no-up": ("the gate alone", lambda m, x: m.down_proj(F.silu(m.gate_proj(x)))),
    "behind": ("SiLU of the product of gate and up", lambda m, x: m.down_proj(F.silu(m.gate_proj(x) * m.up_proj(x)))),
    "capped": (
        "gate and up capped at 7",
        lambda m, x: m.down_proj(F.silu(m.gate_proj(x).clamp(max=7)) * m.up_proj(x).clamp(-7, 7)),
    ),
}
for _key, (_words, _run) in MLPS.items():
    PREFILL.add(f"mlp-{_key}", f"{_words} in the decoder's perceptrons", partial(_mlp, run=_run))
