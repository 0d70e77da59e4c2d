"""Mistakes in the Qwen2 tower: its queries and its input, its mask, its blocks and its end.

Shapes: B views, n image tokens and as many queries, T = 2n, C channels.
"""

from collections.abc import Callable
from functools import partial
from math import isqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.explain.catalogue import blocks
from pytest_dsocr.explain.catalogue.attention import ATTENDED, attended
from pytest_dsocr.explain.catalogue.blocks import NOT_FINITE, TensorChange, rounding, unit
from pytest_dsocr.explain.catalogue.experts import MLPS
from pytest_dsocr.explain.catalogue.numbers import add_numbers
from pytest_dsocr.explain.catalogue.rotary import add_rotations
from pytest_dsocr.explain.mistake import Target, home_of
from pytest_dsocr.explain.rows import Group, MistakeTable, inside, kin, runs, sets, wraps
from pytest_dsocr.layers.attention import repeat_heads
from pytest_dsocr.layers.experts import GatedMlp
from pytest_dsocr.layers.rotary import Rope, inverse_frequencies
from pytest_dsocr.models.deepseek_ocr2 import qwen2
from pytest_dsocr.models.deepseek_ocr2.sizes import QUERIES

NAME = "the tower"
SIGNS = {**NOT_FINITE, Symptom.SHUFFLED: ("features-turned", "backwards")}


def tower_mistakes() -> Group:
    """Return the mistakes of the tower, the likeliest first."""
    group = Group("qwen2", SIGNS)
    masks: MistakeTable = {key: (words, _table(sees)) for key, (words, sees) in SEES.items()}
    group.rows("mask", masks, sets(qwen2, "visible"), words=f"{{}} in {NAME}")
    attends = runs(inside(qwen2.Attention), lambda module, how, x, rope, mask: _run(module, x, rope, mask, **how))
    group.rows("", ATTENDED | ATTENDING, attends, words=f"{{}} in {NAME}")
    add_rotations(group, 1e6)
    group.add("frequencies-exact", f"rotary frequencies of {NAME} in float32, not rounded with the weights", _exact)
    group.rows("positions", POSITIONS, sets(qwen2, "positions"), words=f"{{}} in {NAME}")
    biased = tuple(f"self_attn.{name}_proj" for name in "qkv")
    blocks.add_linears(group, NAME, biased, ("self_attn.q_proj", "self_attn.o_proj"))
    blocks.add_norms(group, NAME, 1e-6, (1e-5, 1e-12, 1e-8, 1e-3), are_rms=True)
    blocks.add_flows(group, NAME)
    group.rows("mlp", MLPS, runs(inside(GatedMlp)), words=f"{{}} in {NAME}'s perceptrons")
    add_numbers(group, NAME)
    group.rows("queries", QUERY_TABLES, _queries, "front")
    group.add("queries-first", "the queries in front of the image tokens", _queries_first, "front")
    group.rows(
        "features", FEATURES, wraps(lambda on: [on.core.qwen2_model], lambda run, change, x: run(change(x))), "front"
    )
    group.rows("", FINAL_NORMS, wraps(lambda on: [_layers(on).norm]), "back")
    group.rows("", ENDS, _ends, "back")
    words = f"SAM's features added to {NAME}'s tokens"
    group.add("sam-joined", words, lambda on: on.changes.around(on.core.qwen2_model, _joined), "back")
    group.add("last-block-left-out", f"{NAME}'s last block left out", _no_last, "back")
    return group


def _layers(on: Target) -> Any:
    return on.core.qwen2_model.model.model


Sees = Callable[[Tensor, Tensor, int], Tensor]
"""Return which rows ``[T, 1]`` see which ``[1, T]``, from their places and the number of image tokens."""
SEES: dict[str, tuple[str, Sees]] = {
    "causal": ("a plain causal mask", lambda q, k, n: k <= q),
    "none": ("no mask", lambda q, k, n: (k >= 0) & (q >= 0)),
    "image-sees-queries": ("image tokens that see the queries", lambda q, k, n: (k <= q) | (q < n)),
    "both-ways": ("queries that see one another in both directions", lambda q, k, n: (k < n) | (q >= n)),
    "queries-apart": ("queries that see no other query", lambda q, k, n: (k < n) | (k == q)),
    "no-queries": ("queries that see no query, nor themselves", lambda q, k, n: (k < n) & (q >= 0)),
    "strict": ("queries that do not see themselves", lambda q, k, n: (k < n) | (k < q)),
    "one-more": ("queries that see one query too many", lambda q, k, n: (k < n) | ((q >= n) & (k <= q + 1))),
    "no-image": ("queries that see no image token", lambda q, k, n: ((q < n) & (k < n)) | ((k >= n) & (k <= q))),
    "exchanged": ("image tokens and queries exchanged in the mask", lambda q, k, n: torch.where(q < n, k <= q, k >= 0)),
    "upside-down": ("the queries' part of the mask upside down", lambda q, k, n: (k < n) | ((q >= n) & (k >= q))),
}


def _table(sees: Sees) -> Callable[[int, torch.device], Tensor]:
    def visible(count: int, device: torch.device) -> Tensor:
        at = torch.arange(2 * count, device=device)
        return sees(at[:, None], at[None], count)

    return visible


def _run(
    module: Any,
    x: Tensor,
    rope: Rope,
    mask: Tensor,
    *,
    repeat: Callable[[Tensor, Tensor], Tensor] = repeat_heads,
    biased: TensorChange = lambda mask: mask,
    merge: TensorChange = lambda out: out.transpose(1, 2).flatten(2),
    **how: Any,
) -> Tensor:
    """Compute the tower's attention of ``[B, T, C]`` as a port may do."""
    q, k, v = (module.split_heads(part(x)) for part in (module.q_proj, module.k_proj, module.v_proj))
    q, k = rope.rotate(q), rope.rotate(k)
    out: Tensor = module.o_proj(merge(attended(q, repeat(k, q), repeat(v, q), bias=biased(mask), **how)))
    return out


ATTENDING: MistakeTable = {
    "heads-tiled": (
        "keys and values repeated head after head for the queries",
        {"repeat": lambda keys, q: keys.repeat(1, q.shape[1] // keys.shape[1], 1, 1)},
    ),
    "heads-first": (
        "the first head of keys and values for every head of queries",
        {"repeat": lambda keys, q: keys[:, :1].expand(-1, q.shape[1], -1, -1)},
    ),
    "heads-not-merged": (
        "heads that are not moved back behind the positions",
        {"merge": lambda out: out.reshape(len(out), out.shape[2], -1)},
    ),
    "scale-half": (
        "scores scaled by the root of half of a head's width",
        {"scale": lambda dim, heads: (2 / dim) ** 0.5},
    ),
    "mask-10000": ("a mask of -10000 in place of the lowest number", {"biased": lambda mask: mask.clamp_min(-1e4)}),
    "mask-0": ("a mask of 0 in place of the lowest number", {"biased": torch.zeros_like}),
    "mask-of-ones": ("a mask of ones and zeros added to the scores", {"biased": lambda mask: (mask == 0).to(mask)}),
}
"""Mistakes of the tower's attention, as replaced arguments of :func:`_run`."""


def _places(change: Callable[[Tensor, int], Tensor]) -> Callable[[int, torch.device], Tensor]:
    return lambda count, device: change(torch.arange(count, device=device), count // 2)[None]


POSITIONS: MistakeTable = {
    "restarted": ("positions that begin again at the queries", _places(lambda at, n: at % n)),
    "none": ("position 0 everywhere", _places(lambda at, n: 0 * at)),
    "one-late": ("positions one too high at the queries", _places(lambda at, n: at + (at >= n))),
    "image-shares": ("one position for all image tokens", _places(lambda at, n: (at - n + 1).clamp_min(0))),
    "queries-share": ("one position for all queries", _places(lambda at, n: at.clamp_max(n))),
    "doubled": ("positions doubled", _places(lambda at, n: 2 * at)),
}


def _exact(on: Target) -> None:
    home = _layers(on)
    on.changes.set(home, "inv_freq", inverse_frequencies(home.rotary).to(home.inv_freq.device))


QueryTable = Callable[[Tensor, Tensor], Tensor]
"""Make a view's queries ``[n, C]`` from its own table and from the other one."""


def _resized(own: Tensor, other: Tensor, **how: Any) -> Tensor:
    side = isqrt(len(other))
    planes = other.float().T.unflatten(1, (side, side))[None]
    out = F.interpolate(planes, size=(isqrt(len(own)),) * 2, **how)[0]
    return out.flatten(1).T.to(own.dtype)


QUERY_TABLES: dict[str, tuple[str, QueryTable]] = {
    "other": (
        "the first queries of the other view's table",
        lambda own, other: other.repeat(-(-len(own) // len(other)), 1)[: len(own)],
    ),
    "interpolated": (
        "the other view's queries interpolated by a bicubic filter",
        partial(_resized, mode="bicubic", align_corners=False),
    ),
    "interpolated-linear": (
        "the other view's queries interpolated by a bilinear filter",
        partial(_resized, mode="bilinear", align_corners=False),
    ),
    "zero": ("queries of zeros", lambda own, other: 0 * own),
    "turned": ("the queries read column by column", lambda own, other: _turned(own)),
    "backwards": ("the queries in the opposite order", lambda own, other: own.flip(0)),
    "first": ("the first query at every place", lambda own, other: own[:1].expand_as(own)),
}


def _turned(queries: Tensor) -> Tensor:
    side = isqrt(len(queries))
    return queries.unflatten(0, (side, side)).transpose(0, 1).flatten(0, 1)


def _queries(on: Target, make: QueryTable) -> None:
    tower = on.core.qwen2_model
    own = tower.queries

    def queries(count: int) -> Tensor:
        [other] = (tower.get_parameter(f"{name}.weight") for tokens, name in QUERIES.items() if tokens != count)
        return make(own(count), other)

    on.changes.set(tower, "queries", queries)


def _queries_first(on: Target) -> None:
    tower = on.core.qwen2_model

    def forward(sam: Tensor) -> Tensor:
        image = _flat(sam)
        queries = tower.queries(image.shape[1]).expand(len(image), -1, -1)
        out: Tensor = tower.model.model(torch.cat([queries, image], 1))
        return out[:, : image.shape[1]]

    on.changes.forward(tower, forward)
    on.changes.set(qwen2, "visible", _table(lambda q, k, n: (k >= n) | ((q < n) & (k <= q))))


def _flat(sam: Tensor) -> Tensor:
    return sam.flatten(2).transpose(1, 2)


FEATURES: MistakeTable = {
    "turned": ("SAM's features given to the tower column by column", lambda x: x.transpose(2, 3)),
    "reshaped": (
        "SAM's features reshaped for the tower, channels not moved behind places",
        lambda x: x.reshape(len(x), -1, x.shape[1]).transpose(1, 2).reshape(x.shape),
    ),
    "normed": (
        "SAM's features normed in front of the tower",
        lambda x: F.layer_norm(_flat(x), x.shape[1:2]).transpose(1, 2).reshape(x.shape),
    ),
    **rounding("SAM's features rounded to {} in front of the tower"),
}
FINAL_NORMS: MistakeTable = {
    "no-final-norm": (f"no norm behind {NAME}'s last block", lambda run, x: x),
    "final-norm-twice": (f"the norm behind {NAME}'s last block run twice", lambda run, x: run(run(x))),
    "final-norm-plain": (f"the norm behind {NAME}'s last block without its weights", lambda run, x: unit(x)),
}


def _joined(run: TensorChange, sam: Tensor) -> Tensor:
    return run(sam) + _flat(sam)


def _half(change: Callable[[Tensor, int], Tensor]) -> TensorChange:
    return lambda out: change(out, out.shape[1] // 2)


ENDS: MistakeTable = {
    "image-half": ("the image tokens' half of the tower's output", _half(lambda out, n: out[:, :n])),
    "one-early": ("the tower's output taken one place too early", _half(lambda out, n: out[:, n - 1 : -1])),
    "one-late": ("the tower's output taken one place too late", _half(lambda out, n: out.roll(-1, 1)[:, n:])),
    "halves-added": ("both halves of the tower's output added", _half(lambda out, n: out[:, :n] + out[:, n:])),
    "backwards": ("the tower's output in the opposite order", _half(lambda out, n: out[:, n:].flip(1))),
    "end-turned": (
        "the tower's output read column by column",
        _half(lambda out, n: out[:, n:].unflatten(1, (isqrt(n), -1)).transpose(1, 2).flatten(1, 2)),
    ),
    **kin("end", rounding("the tower's output rounded to {}", lambda change: _half(lambda out, n: change(out[:, n:])))),
}


def _ends(on: Target, change: TensorChange) -> None:
    on.changes.set(on.core.qwen2_model, "of_queries", change)


def _no_last(on: Target) -> None:
    owner, name = home_of(on.engine, "qwen2")
    on.changes.set(owner, name, nn.ModuleList(on.all_blocks[:-1]))
