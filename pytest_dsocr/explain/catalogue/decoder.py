"""Mistakes of the decoder as it reads the prompt: embeddings, attention, rotary positions, the last norm, the head."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.engine import pipeline
from pytest_dsocr.explain.catalogue import blocks
from pytest_dsocr.explain.catalogue.blocks import DTYPES, NARROW, NOT_FINITE, TensorChange, rounded, rounding
from pytest_dsocr.explain.catalogue.experts import CAPACITIES, add_experts
from pytest_dsocr.explain.mistake import Group, MistakeTable, Row, Target, kin
from pytest_dsocr.layers import decoder
from pytest_dsocr.layers.attention import repeat_heads
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.rotary import Rope
from pytest_dsocr.models.deepseek_ocr.mistakes.encoders import ATTENDED, LETTERS, attended
from pytest_dsocr.models.spec import PREFILL

WINDOWS = (64, 128, 256, 512, 1024, 4096)
THETAS = (5e5, 1e6, 5e6, 1e5, 5e4, 1e3, 1e7, 1.5e5)
SIGNS = {
    **NOT_FINITE,
    Symptom.LATER_ROWS: ("positions-bfloat16", "window-128", "experts-room-100"),
    Symptom.FROM_PREFILL: ("logits-last-but-one",),
    Symptom.UNRELATED: ("features-text-only",),
}
STEPWISE = ("over-queries", "heads-not-merged", "block-before", "block-twice", *CAPACITIES)


def prefill_mistakes() -> Group:
    """Return the mistakes of the pass over the prompt, the likeliest first."""
    group = Group(PREFILL, SIGNS, STEPWISE)
    group.rows("features", SCATTERS, _scatters, "front")
    for key, row in EMBEDDED.items():
        group.rows("embeddings", {key: row}, _embeddings, "front", "the text's embeddings {}")
        group.rows("prompt", {key: row}, _whole, "front", "the whole prompt's embeddings {}")
    group.rows("", HIDDEN, _hides, words="{} in the decoder")
    group.rows("", ATTENDED | ATTENDING, _attends, words="{} in the decoder")
    group.rows("mask", BY_SDPA, _by_sdpa)
    group.rows("attention", NARROW, _attends_in, words="the decoder's attention computed in {}")
    group.add("qk-norm", "queries and keys normed in the decoder", partial(_projected, names="qk", change=_unit_heads))
    for one, other in ("qk", "kv", "qv"):
        words = f"the weights of {LETTERS[one]} and {LETTERS[other]} exchanged in the decoder"
        group.add(f"{one}_proj-{other}_proj", words, partial(_swapped, one=one, other=other))
    for one in LETTERS:
        words = f"heads of the decoder's {one}_proj read as the innermost axis"
        plant = partial(_projected, names=one, change=_dims_first)
        group.add(f"dims-first-{one}_proj", words, plant, kind="dims-first")
    group.add("heads-not-merged", "the decoder's heads not moved back behind the positions", _not_merged)
    blocks.add_norms(group, "the decoder", 1e-6, (1e-5, 1e-12, 1e-8, 1e-3))
    blocks.add_linears(group, "the decoder", (), tuple(f"self_attn.{name}_proj" for name in "qkvo"))
    blocks.add_flows(group, "the decoder")
    add_experts(group)
    group.rows("", NO_LAST_NORM, _last_norm, "back")
    group.rows("last-norm", LAST_NORMS, _last_norm, "back")
    epsilons = {f"{eps:g}": Row(f"{eps:g}", eps, is_small=True) for eps in (1e-5, 1e-12, 1e-3)}
    group.rows("last-norm", epsilons, _last_epsilon, "back", "an epsilon of {} in place of 1e-06 in the last norm")
    group.add(
        "last-norm-one-more", "the last norm scaling by one plus its weights", _last_gain, "back", kind="last-norm"
    )
    group.rows("head", HEADS, _head, "back")
    group.rows("logits", PLACES, _from_another, "back")
    group.add("last-layer-left-out", "the decoder's last layer left out", _no_last, "back")
    group.add("values-before", "the values of the layer in front in each layer's cache", _values_before)
    group.rows("rope", ROTATIONS, _rotates)
    group.add("rope-values", "rotary positions on values as well", _values_too, kind="rope")
    for side in ("queries", "keys"):
        group.add(f"rope-no-{side}", f"no rotary positions on {side}", partial(_one_side, side=side), kind="rope")
    thetas = {f"{theta:g}": (f"{theta:g}", theta) for theta in THETAS}
    group.rows("theta", thetas, _theta, words="a rotary base of {} in place of 10000")
    group.rows("positions", POSITIONS, _positioned)
    group.rows("frequencies", FREQUENCIES, _frequencies)
    return group


Scatter = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Put features ``[n, C]`` into embeddings ``[S, C]`` at the places ``[n]``."""


def _put(embeds: Tensor, at: Tensor, features: Tensor, part: slice = slice(None)) -> Tensor:
    return embeds.index_copy(0, at[part], features[part])


def _put_changed(embeds: Tensor, at: Tensor, features: Tensor, change: TensorChange) -> Tensor:
    return _put(embeds, at, change(features))


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


SCATTERS: MistakeTable = {
    "text-only": ("the image tokens' own embeddings in place of vision's features", lambda e, at, f: e),
    "one-late": ("vision's features one place too late", lambda e, at, f: _put(e, (at + 1).clamp_max(len(e) - 1), f)),
    "one-early": ("vision's features one place too early", lambda e, at, f: _put(e, at - 1, f)),
    "from-start": ("vision's features from the prompt's first position on", lambda e, at, f: _put(e, at - at[0], f)),
    "at-end": ("vision's features at the end of the prompt", lambda e, at, f: _put(e, at + len(e) - 1 - at[-1], f)),
    "added": ("vision's features added to the image tokens' embeddings", lambda e, at, f: _put(e, at, f + e[at])),
    "not-last": ("vision's last feature, the separator, left out", lambda e, at, f: _put(e, at, f, slice(len(at) - 1))),
    "not-first": ("vision's first feature left out", lambda e, at, f: _put(e, at, f, slice(1, None))),
    "first-alone": ("vision's first feature at every image token", lambda e, at, f: _put(e, at, f[:1].expand_as(f))),
    "first-only": ("vision's features put at one image token alone", lambda e, at, f: _put(e, at, f, slice(1))),
    "shifted": ("vision's features one off, the last in front", lambda e, at, f: _put(e, at, f.roll(1, 0))),
    "zeros": ("zeros in place of vision's features", lambda e, at, f: _put(e, at, 0 * f)),
    **rounding("vision's features rounded to {}", lambda change: partial(_put_changed, change=change)),
    "scaled": (
        "vision's features multiplied by the root of the width",
        lambda e, at, f: _put(e, at, f * f.shape[-1] ** 0.5),
    ),
}
EMBEDDED: MistakeTable = {
    "scaled": ("multiplied by the root of the width", lambda x: x * x.shape[-1] ** 0.5),
    **rounding("rounded to {}"),
    "normed": ("normed", _unit),
    "layer-normed": ("brought to mean 0 and deviation 1", lambda x: F.layer_norm(x, x.shape[-1:])),
}


def _scatters(on: Target, how: Scatter) -> None:
    def scatter(embeds: Tensor, mask: Tensor, features: Tensor, _expected: int) -> Tensor:
        return how(embeds[0], mask[0].nonzero().flatten(), features.to(embeds.dtype))[None]

    on.changes.set(pipeline, "scatter", scatter)


def _embeddings(on: Target, change: TensorChange) -> None:
    on.changes.around(on.core.embed_tokens, lambda run, ids: change(run(ids)))


def _whole(on: Target, change: TensorChange) -> None:
    run = on.core.decode
    on.changes.set(on.core, "decode", lambda x, cache: run(change(x), cache))


OfImage = Callable[[Tensor, Tensor, tuple[int, int]], Tensor]
"""Return the keys hidden from queries ``[T, 1]``, from keys' positions ``[1, S]`` and the image's start and end."""


def _outside(q: Tensor, k: Tensor, image: tuple[int, int], size: int) -> Tensor:
    return (k > q) | (k <= q - size)


def _capped(scores: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(scores / cap)


HIDDEN: MistakeTable = {
    "no-mask": ("no causal mask", lambda q, k, image: (k < 0) & (q < 0)),
    "strict": ("a causal mask that hides each token from itself", lambda q, k, image: (k >= q) & (k + q > 0)),
    "strict-all": (
        "a causal mask that hides each token from itself, the first one as well",
        lambda q, k, image: k >= q,
    ),
    "one-more": ("a causal mask that shows one token too many", lambda q, k, image: k > q + 1),
    "image-both-ways": (
        "image tokens that see one another in both directions",
        lambda q, k, image: (k > q) & ~((q >= image[0]) & (q < image[1]) & (k < image[1])),
    ),
    "prefix-both-ways": (
        "a prompt that sees itself in both directions up to its image's end",
        lambda q, k, image: (k > q) & (k >= image[1]),
    ),
    "image-hidden": (
        "image tokens hidden from the text behind them",
        lambda q, k, image: (k > q) | ((q >= image[1]) & (k >= image[0]) & (k < image[1])),
    ),
    "first-hidden": ("the prompt's first token hidden", lambda q, k, image: (k > q) | ((k == 0) & (q > 0))),
    "upside-down": ("the causal mask the wrong way round", lambda q, k, image: k < q),
    **kin("window", {f"{n}": (f"a sliding window of {n} tokens", partial(_outside, size=n)) for n in WINDOWS}),
}


ATTENDING: MistakeTable = {
    "scale-half": (
        "scores scaled by the root of half of a head's width",
        {"scale": lambda dim, heads: math.sqrt(2 / dim)},
    ),
    "scale-mla": (
        "scores scaled as for heads with a part of their own for positions",
        {"scale": lambda dim, heads: 1 / math.sqrt(dim + dim // 2)},
    ),
    "probabilities-bfloat16": Row(
        "attention's probabilities rounded to bfloat16",
        {"softmax": lambda s: rounded(s.softmax(-1), torch.bfloat16)},
        "bfloat16",
    ),
    "scores-bfloat16": Row(
        "scores rounded to bfloat16", {"softmax": lambda s: s.bfloat16().float().softmax(-1)}, "bfloat16"
    ),
    **kin("cap", {f"{cap}": (f"scores capped at {cap}", {"change": partial(_capped, cap=cap)}) for cap in (50, 30)}),
    **{f"mask-{-n:g}": (f"a mask of {n:g} in place of minus infinity", {"fill": n}) for n in (-10000.0, -100.0)},
    "mask-0": ("a mask of 0 in place of minus infinity", {"fill": 0.0}),
    "heads-tiled": (
        "keys and values repeated head after head for the queries",
        {"repeat": lambda keys, q: keys.repeat(1, q.shape[1] // keys.shape[1], 1, 1)},
    ),
}
"""Mistakes of the decoder's attention, as replaced arguments of :func:`attended`."""


def _attend(
    q: Tensor, k: Tensor, v: Tensor, lengths: Any, repeat: Callable[..., Tensor] = repeat_heads, **how: Any
) -> Tensor:
    how = {"hidden": lambda q, k: k > q, **how}
    if 1 < q.shape[2] < k.shape[2]:  # several steps in one pass: none sees later tokens
        hidden = how["hidden"]
        how |= {"hidden": lambda q, k: hidden(q, k) | (k > q), "fill": None}
    return attended(q, repeat(k, q), repeat(v, q), **how)


def _attends(on: Target, how: dict[str, Any]) -> None:
    for module in on.modules(decoder.DecoderAttention):
        on.changes.set(module, "attend", partial(_attend, **how))


def _hides(on: Target, hidden: OfImage) -> None:
    _attends(on, {"hidden": lambda q, k: hidden(q, k, on.prompt.image)})


BY_SDPA: dict[str, tuple[str, TensorChange]] = {
    "inverted": ("SDPA given a mask that is True where a token is hidden", torch.logical_not),
    "of-ones": ("SDPA given a mask of ones and zeros, which it adds to the scores", Tensor.float),
}


def _by_sdpa(on: Target, mask: TensorChange) -> None:
    def attend(run: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, lengths: Any) -> Tensor:
        if q.shape[2] != k.shape[2]:
            return run(q, k, v, lengths)  # a step needs no mask
        made = mask(torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril())
        made = made if made.dtype == torch.bool else made.to(q.dtype)
        return F.scaled_dot_product_attention(q, repeat_heads(k, q), repeat_heads(v, q), attn_mask=made)

    for module in on.modules(decoder.DecoderAttention):
        on.changes.set(module, "attend", partial(attend, module.attend))


def _attends_in(on: Target, dtype: torch.dtype) -> None:
    for module in on.modules(decoder.DecoderAttention):
        on.changes.set(module, "attend", partial(_attend_in, module.attend, dtype))


def _attend_in(run: Callable[..., Tensor], dtype: torch.dtype, q: Tensor, k: Tensor, v: Tensor, n: Any) -> Tensor:
    return run(q.to(dtype), k.to(dtype), v.to(dtype), n).to(q.dtype)


def _projected(on: Target, names: str, change: Callable[[Tensor, int], Tensor]) -> None:
    for module in on.modules(decoder.DecoderAttention):
        for linear in (module.get_submodule(f"{name}_proj") for name in names):
            on.changes.around(linear, lambda run, x, dim=module.head_dim: change(run(x), dim))


def _unit_heads(x: Tensor, dim: int) -> Tensor:
    return _unit(x.unflatten(-1, (-1, dim))).flatten(-2)


def _dims_first(x: Tensor, dim: int) -> Tensor:
    out: Tensor = x.unflatten(-1, (dim, -1)).transpose(-1, -2).flatten(-2)
    return out


def _swapped(on: Target, one: str, other: str) -> None:
    for module in on.modules(decoder.DecoderAttention):
        a, b = (module.get_submodule(f"{name}_proj").weight for name in (one, other))
        a_values, b_values = a.data, b.data
        on.changes.weight(a, b_values)
        on.changes.weight(b, a_values)


def _not_merged(on: Target) -> None:
    def heads_last(run: Callable[..., Tensor], *args: Any) -> Tensor:
        out = run(*args)
        return out.reshape(len(out), out.shape[2], out.shape[1], -1).transpose(1, 2)

    for module in on.modules(decoder.DecoderAttention):
        on.changes.set(module, "attend", partial(heads_last, module.attend))


NO_LAST_NORM: MistakeTable = {"no-last-norm": ("no norm behind the decoder's last layer", lambda run, x: x)}
LAST_NORMS: MistakeTable = {
    "twice": ("the last norm run twice", lambda run, x: run(run(x))),
    "plain": ("the last norm without its weights", lambda run, x: _unit(x)),
}
HeadChange = Callable[[Any, TensorChange, Tensor], Tensor]
"""Compute logits from the model, its own head and the hidden states."""


def _head_in(model: Any, run: TensorChange, x: Tensor, dtype: torch.dtype) -> Tensor:
    return blocks.linear_in(model.lm_head, dtype, x).float()


def _logits_changed(model: Any, run: TensorChange, x: Tensor, change: TensorChange) -> Tensor:
    return change(run(x))


HEADS: MistakeTable = {
    "tied": (
        "the embeddings in the place of the head's weights (tied)",
        lambda model, run, x: F.linear(x, model.model.embed_tokens.weight).float(),
    ),
    **{key: Row(f"the head computed in {key}", partial(_head_in, dtype=dtype), key) for key, dtype in DTYPES.items()},
    **kin("logits", rounding("logits rounded to {}", lambda change: partial(_logits_changed, change=change))),
    "weights-bfloat16": Row(
        "the head's weights rounded to bfloat16",
        lambda model, run, x: F.linear(x, rounded(model.lm_head.weight, torch.bfloat16)).float(),
        "bfloat16",
    ),
    "scaled": ("logits divided by the root of the width", lambda model, run, x: run(x) / x.shape[-1] ** 0.5),
    "multiplied": ("logits multiplied by the root of the width", lambda model, run, x: run(x) * x.shape[-1] ** 0.5),
    "cap-30": ("logits capped at 30", lambda model, run, x: _capped(run(x), 30.0)),
    "cap-50": ("logits capped at 50", lambda model, run, x: _capped(run(x), 50.0)),
    "softmax": ("probabilities in the place of logits", lambda model, run, x: run(x).softmax(-1)),
    "log-softmax": ("logarithms of probabilities in the place of logits", lambda model, run, x: run(x).log_softmax(-1)),
    "one-off": ("logits one token off", lambda model, run, x: run(x).roll(1, -1)),
    "one-off-other": ("logits one token too early", lambda model, run, x: run(x).roll(-1, -1)),
}
PLACES: dict[str, tuple[str, Callable[[Target, int], int]]] = {
    "last-but-one": ("the logits behind the prompt's last token but one", lambda on, length: length - 2),
    "first": ("the logits behind the prompt's first token", lambda on, length: 0),
    "image-end": ("the logits behind the last image token", lambda on, length: on.prompt.image[1] - 1),
}


def _last_norm(on: Target, change: Callable[..., Tensor]) -> None:
    on.changes.around(on.core.norm, change)


def _last_epsilon(on: Target, eps: float) -> None:
    on.changes.set(on.core.norm, "eps", eps)


def _last_gain(on: Target) -> None:
    on.changes.weight(on.core.norm.weight, on.core.norm.weight.data + 1)


def _head(on: Target, change: HeadChange) -> None:
    on.changes.around(on.model.lm_head, lambda run, x: change(on.model, run, x))


def _from_another(on: Target, at: Callable[[Target, int], int]) -> None:
    model = on.model

    def decode(embeds: Tensor, cache: KVCache, *, all_logits: bool = False) -> Tensor:
        if cache.length:
            return model.lm_head(model.model.decode(embeds, cache))  # type: ignore[no-any-return]
        hidden = model.model.decode(embeds, cache)
        place = at(on, hidden.shape[1])
        logits: Tensor = model.lm_head(hidden[:, place : place + 1])
        return logits

    on.changes.set(model, "decode", decode)


def _no_last(on: Target) -> None:
    if on.first:
        raise NotImplementedError
    on.changes.set(on.core, "layers", nn.ModuleList(on.all_blocks[:-1]))


def _values_before(on: Target) -> None:
    append, kept = KVCache.append, dict[int, Tensor]()

    def changed(cache: KVCache, layer: int, keys: Tensor, values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        kept[layer] = values
        k, v = append(cache, layer, keys, kept.get(layer - 1, values), positions)
        return k, v

    on.changes.set(KVCache, "append", changed)


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


def _rotates(on: Target, rotate: Rotate) -> None:
    on.changes.set(Rope, "rotate", lambda rope, x: rotate(rope, x))  # a partial is no method


def _one_side(on: Target, side: str) -> None:
    turn, turns = Rope.rotate, [0]

    def rotate(rope: Rope, x: Tensor) -> Tensor:
        turns[0] += 1
        is_query = turns[0] % 2 == 1
        return x if is_query == (side == "queries") else turn(rope, x)

    on.changes.set(Rope, "rotate", rotate)


def _values_too(on: Target) -> None:
    def forward(self: Any, x: Tensor, rope: Rope, cache: Any) -> Tensor:
        q, k, v = (rope.rotate(self.split_heads(part(x))) for part in (self.q_proj, self.k_proj, self.v_proj))
        keys, values = cache.append(self.layer, k, v, rope.positions)
        out: Tensor = self.o_proj(self.attend(q, keys, values, None).transpose(1, 2).flatten(2))
        return out

    on.changes.set(decoder.DecoderAttention, "forward", forward)


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


def _positioned(on: Target, change: Positions) -> None:
    start = Rope.__init__

    def init(rope: Rope, frequencies: Tensor, positions: Tensor, dtype: torch.dtype) -> None:
        start(rope, frequencies, change(on, positions), dtype)
        rope.positions = positions

    on.changes.set(Rope, "__init__", init)


def _frequencies(on: Target, change: TensorChange) -> None:
    on.changes.set(on.core, "inv_freq", change(on.core.inv_freq))


def _theta(on: Target, theta: float) -> None:
    own = on.core.inv_freq
    exponents = torch.arange(len(own), device=own.device).float() / len(own)
    on.changes.set(on.core, "inv_freq", (1.0 / theta**exponents).to(own.dtype))
