"""What-ifs in front of the blocks of SAM and CLIP, and behind them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.engine import clip, sam
from pytest_dsocr.whatif.blocks import DTYPES, add_activations, add_flows, add_linears, add_norms, add_numbers
from pytest_dsocr.whatif.family import Bench, Family
from pytest_dsocr.whatif.of_sam import SAM
from pytest_dsocr.whatif.positions import Resize, grid_variants
from pytest_dsocr.whatif.vision_attention import add_attention

CLIP = Family("clip")
"""The likeliest first."""


def _core(on: Bench) -> Any:
    return on.model.model


def _grid(on: Bench, module: Any, resize: Resize) -> None:
    on.changes.set(module, "resize_grid", resize)


for _key, _words, _resize in grid_variants():
    SAM.add(
        f"positions-{_key}", f"SAM's absolute positions {_words}", partial(_grid, module=sam, resize=_resize), "front"
    )
    CLIP.add(f"positions-{_key}", f"CLIP's positions {_words}", partial(_grid, module=clip, resize=_resize), "front")

PIXELS: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "bgr": ("the pixels' channels in the opposite order", lambda x: x.flip(1)),
    "turned": ("the pixels' rows and columns exchanged", lambda x: x.transpose(2, 3)),
    "normalised-twice": ("the pixels normalised a second time", lambda x: (x - 0.5) / 0.5),
    "shares": ("pixels from 0 to 1", lambda x: x * 0.5 + 0.5),
    "float16": ("the pixels rounded to float16", lambda x: x.half().to(x.dtype)),
    "upside-down": ("the pixels' rows in the opposite order", lambda x: x.flip(2)),
    "mirrored": ("the pixels' columns in the opposite order", lambda x: x.flip(3)),
    "negative": ("the pixels negated", lambda x: -x),
}


def _pixels(on: Bench, change: Callable[[Tensor], Tensor]) -> None:
    on.changes.around(_core(on).sam_model.patch_embed, lambda run, x: run(change(x)))


def _patches(on: Bench, change: Callable[[Tensor], Tensor]) -> None:
    weight = _core(on).sam_model.patch_embed.proj.weight
    on.changes.weight(weight, change(weight.data))


def _blocks_given(on: Bench, change: Callable[[Tensor], Tensor], owner: str) -> None:
    on.changes.around(_core(on).get_submodule(owner), lambda run, x, *rest: run(change(x), *rest))


for _key, (_words, _change) in PIXELS.items():
    SAM.add(f"pixels-{_key}", f"{_words} in front of SAM", partial(_pixels, change=_change), "front")
SAM.add(
    "patches-turned",
    "rows and columns of the patches' weights exchanged",
    partial(_patches, change=lambda w: w.transpose(2, 3)),
    "front",
)
SAM.add(
    "patches-bgr",
    "the patches' weights in the order blue, green, red",
    partial(_patches, change=lambda w: w.flip(1)),
    "front",
)
SAM.add(
    "patches-flipped",
    "the patches' weights turned by 180 degrees, as of a true convolution",
    partial(_patches, change=lambda w: w.flip(2, 3)),
    "front",
)
SAM.add(
    "patches-channels-last",
    "the patches' weights read with the channels last",
    partial(_patches, change=lambda w: w.flatten(1).unflatten(1, (*w.shape[2:], w.shape[1])).permute(0, 3, 1, 2)),
    "front",
)
for _key, _dtype in DTYPES.items():
    SAM.add(
        f"patches-{_key}",
        f"the patches' weights rounded to {_key}",
        partial(_patches, change=lambda w, to=_dtype: w.to(to).to(w.dtype)),
        "front",
    )


@SAM("patches-no-bias", "the patches without their bias", "front")
def _no_patch_bias(on: Bench) -> None:
    bias = _core(on).sam_model.patch_embed.proj.bias
    on.changes.weight(bias, torch.zeros_like(bias))


@SAM("patches-by-column", "SAM's patches in the order of the columns", "front")
def _patches_turned(on: Bench) -> None:
    on.changes.around(_core(on).sam_model.patch_embed, lambda run, x: run(x).transpose(1, 2))


def _neck(on: Bench, index: int, run: Callable[..., Tensor]) -> None:
    on.changes.around(_core(on).sam_model.neck[index], run)


def _down(on: Bench, name: str, change: Callable[[Any, Tensor], Tensor]) -> None:
    conv = getattr(_core(on).sam_model, name)
    on.changes.forward(conv, partial(change, conv))


def _conv(
    conv: Any,
    x: Tensor,
    *,
    pad: tuple[int, int, int, int] = (1, 1, 1, 1),
    mode: str = "constant",
    flip: bool = False,
    turned: bool = False,
) -> Tensor:
    weight = conv.weight.flip(2, 3) if flip else conv.weight.transpose(2, 3) if turned else conv.weight
    return F.conv2d(F.pad(x, pad, mode=mode), weight, stride=conv.stride)


CONVOLUTIONS: dict[str, tuple[str, Callable[[Any, Tensor], Tensor]]] = {
    "pad-behind": ('padded behind only, as TensorFlow\'s "same" does,', partial(_conv, pad=(0, 1, 0, 1))),
    "pad-front": ("padded in front only", partial(_conv, pad=(1, 0, 1, 0))),
    "pad-replicate": ("padded with the last row and column", partial(_conv, mode="replicate")),
    "pad-reflect": ("padded by reflection", partial(_conv, mode="reflect")),
    "flipped": ("with its weights turned by 180 degrees", partial(_conv, flip=True)),
    "turned": ("with rows and columns of its weights exchanged", partial(_conv, turned=True)),
    "bfloat16": ("computed in bfloat16", lambda conv, x: _conv(conv, x.bfloat16().to(x.dtype)).bfloat16().to(x.dtype)),
}


def _convolutions(on: Bench, change: Callable[[Any, Tensor], Tensor], which: tuple[str, ...]) -> None:
    model = _core(on).sam_model
    for name in which:
        conv = model.neck[2] if name == "neck.2" else getattr(model, name)
        on.changes.forward(conv, partial(change, conv))


for _key, (_words, _run) in CONVOLUTIONS.items():
    for _which in (("net_2", "net_3"), ("net_2",), ("net_3",), ("neck.2",), ("neck.2", "net_2", "net_3")):
        SAM.add(
            f"{'-'.join(_which)}-{_key}",
            f"SAM's {' and '.join(_which)} {_words}",
            partial(_convolutions, change=_run, which=_which),
            "back",
        )
for _key, (_words, _act) in {"gelu": ("GELU", F.gelu), "relu": ("ReLU", F.relu), "silu": ("SiLU", F.silu)}.items():
    SAM.add(
        f"between-{_key}",
        f"{_words} behind net_2 of SAM",
        partial(_down, name="net_2", change=lambda conv, x, act=_act: act(_conv(conv, x))),
        "back",
    )
    SAM.add(
        f"end-{_key}",
        f"{_words} behind net_3 of SAM",
        partial(_down, name="net_3", change=lambda conv, x, act=_act: act(_conv(conv, x))),
        "back",
    )
    SAM.add(
        f"neck-{_key}",
        f"{_words} between the convolutions of SAM's neck",
        partial(_neck, index=1, run=lambda run, x, act=_act: act(run(x))),
        "back",
    )
    SAM.add(
        f"neck-end-{_key}",
        f"{_words} behind SAM's neck",
        partial(_neck, index=3, run=lambda run, x, act=_act: act(run(x))),
        "back",
    )


def _neck_norm(
    norm: Any,
    x: Tensor,
    *,
    dims: tuple[int, ...] = (1,),
    correction: int = 0,
    eps: float | None = None,
    plain: str = "",
    outside: bool = False,
    centred: bool = True,
) -> Tensor:
    middle = x - x.mean(dims, keepdim=True) if centred else x
    variance = (
        (x if centred else x).var(dims, keepdim=True, correction=correction)
        if centred
        else x.pow(2).mean(dims, keepdim=True)
    )
    eps = norm.eps if eps is None else eps
    normal = middle / (variance.sqrt() + eps if outside else torch.sqrt(variance + eps))
    weight, bias = norm.weight[:, None, None], norm.bias[:, None, None]
    return normal * (1 if "weight" in plain else weight) + (0 if "bias" in plain else bias)


NECK_NORMS: dict[str, tuple[str, Callable[[Any, Tensor], Tensor]]] = {
    "missing": ("left out", lambda norm, x: x),
    "over-places": ("over the places, not the channels", partial(_neck_norm, dims=(2, 3))),
    "over-all": ("over places and channels together", partial(_neck_norm, dims=(1, 2, 3))),
    "unbiased": ("whose variance is over one channel less", partial(_neck_norm, correction=1)),
    "no-weight": ("without weights", partial(_neck_norm, plain="weight")),
    "no-bias": ("without biases", partial(_neck_norm, plain="bias")),
    "plain": ("without weights and biases", partial(_neck_norm, plain="weight bias")),
    "rms": ("that do not take the mean away", partial(_neck_norm, centred=False)),
    "outside": ("whose epsilon is added to the root", partial(_neck_norm, outside=True)),
    "bfloat16": ("computed in bfloat16", lambda norm, x: _neck_norm(norm, x.bfloat16().float()).bfloat16().to(x.dtype)),
    **{
        f"{eps:g}": (f"with an epsilon of {eps:g} in place of 1e-06", partial(_neck_norm, eps=eps))
        for eps in (1e-5, 1e-12, 1e-3, 1e-8)
    },
}


def _neck_norms(on: Bench, change: Callable[[Any, Tensor], Tensor], which: tuple[int, ...]) -> None:
    for index in which:
        norm = _core(on).sam_model.neck[index]
        on.changes.forward(norm, partial(change, norm))


for _key, (_words, _norm) in NECK_NORMS.items():
    for _places, _name in (
        ((1, 3), "norms of SAM's neck"),
        ((1,), "first norm of SAM's neck"),
        ((3,), "second norm of SAM's neck"),
    ):
        SAM.add(
            f"neck-norm-{_key}-{len(_places)}{_places[0]}",
            f"the {_name} {_words}",
            partial(_neck_norms, change=_norm, which=_places),
            "back",
        )


@SAM("neck-turned", "SAM's rows and columns exchanged in front of the neck", "back")
def _neck_turned(on: Bench) -> None:
    _neck(on, 0, lambda run, x: run(x.transpose(2, 3)))


add_activations(CLIP, "CLIP", "quick", lambda act, mlp, x: mlp.fc2(act(mlp.fc1(x))), clip.Mlp)
add_norms(CLIP, "CLIP", 1e-5, (1e-6, 1e-12, 1e-8, 1e-3))
add_attention(CLIP, "CLIP")
add_linears(CLIP, "CLIP", ("self_attn.qkv_proj", "self_attn.out_proj", "mlp.fc1", "mlp.fc2"), ("self_attn.out_proj",))
add_flows(CLIP, "CLIP")
add_numbers(CLIP, "CLIP")


def _tokens(
    module: Any,
    x: Tensor,
    *,
    class_at: str = "front",
    positioned: str = "all",
    order: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """Embed SAM's features as a port may do."""
    batch, width, side, _ = x.shape
    table = module.position_embedding.weight
    own = table[:1].expand(batch, 1, -1) * (positioned in ("all", "class"))
    grid = int(len(table[1:]) ** 0.5)
    if positioned == "end-class":
        own, of_grid = table[-1:].expand(batch, 1, -1), clip.resize_grid(table[:-1].view(grid, grid, width), side)
    elif positioned == "mean-class":
        own, of_grid = table[1:].mean(0).expand(batch, 1, -1), clip.resize_grid(table[1:].view(grid, grid, width), side)
    elif positioned == "first":
        of_grid = table[1 : 1 + side * side].view(side, side, width)
    else:
        of_grid = clip.resize_grid(table[1:].view(grid, grid, width), side)
    if positioned in ("none", "class"):
        of_grid = torch.zeros_like(of_grid)
    patches = (order or (lambda y: y.flatten(2).transpose(1, 2)))(x) + of_grid.reshape(-1, width)
    token = module.class_embedding.expand(batch, 1, -1) * (class_at != "zero") + own
    return torch.cat([patches, token] if class_at == "end" else [token, patches], 1)


EMBEDDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "class-last": ("CLIP's class token behind the patches", {"class_at": "end"}),
    "class-zero": ("CLIP's class token of zeros", {"class_at": "zero"}),
    "class-unplaced": ("CLIP's class token without a position", {"positioned": "grid"}),
    "class-alone-placed": ("CLIP's positions added to the class token alone", {"positioned": "class"}),
    "unplaced": ("CLIP without positions", {"positioned": "none"}),
    "class-position-last": ("the last of CLIP's positions taken for the class token's", {"positioned": "end-class"}),
    "class-position-mean": ("the mean of CLIP's positions for the class token", {"positioned": "mean-class"}),
    "positions-in-a-row": ("CLIP's first positions in a row, not resized", {"positioned": "first"}),
    "features-turned": (
        "SAM's features given to CLIP column by column",
        {"order": lambda x: x.transpose(2, 3).flatten(2).transpose(1, 2)},
    ),
    "features-reshaped": (
        "SAM's features reshaped for CLIP, channels not moved behind places",
        {"order": lambda x: x.reshape(len(x), -1, x.shape[1])},
    ),
    "features-bfloat16": (
        "SAM's features rounded to bfloat16 in front of CLIP",
        {"order": lambda x: x.bfloat16().to(x.dtype).flatten(2).transpose(1, 2)},
    ),
    "features-float16": (
        "SAM's features rounded to float16 in front of CLIP",
        {"order": lambda x: x.half().to(x.dtype).flatten(2).transpose(1, 2)},
    ),
    "features-normed": (
        "SAM's features normed in front of CLIP's embeddings",
        {"order": lambda x: F.layer_norm(x.flatten(2).transpose(1, 2), x.shape[1:2])},
    ),
}


def _embeds(on: Bench, how: dict[str, Any]) -> None:
    module = _core(on).vision_model.embeddings
    on.changes.forward(module, partial(_tokens, module, **how))


for _key, (_words, _how) in EMBEDDINGS.items():
    CLIP.add(_key, _words, partial(_embeds, how=_how), "front")


def _pre(on: Bench, change: Callable[..., Tensor]) -> None:
    on.changes.around(_core(on).vision_model.pre_layrnorm, change)


CLIP.add("no-pre-norm", "CLIP without the norm in front of its blocks", partial(_pre, change=lambda run, x: x), "front")
CLIP.add(
    "pre-norm-twice",
    "CLIP's norm in front of its blocks run twice",
    partial(_pre, change=lambda run, x: run(run(x))),
    "front",
)
CLIP.add(
    "pre-norm-not-class",
    "CLIP's class token left out of the norm in front of its blocks",
    partial(_pre, change=lambda run, x: torch.cat([x[:, :1], run(x[:, 1:])], 1)),
    "front",
)
for _eps in (1e-6, 1e-12, 1e-8, 1e-3):
    CLIP.add(
        f"pre-norm-{_eps:g}",
        f"an epsilon of {_eps:g} in place of 1e-05 in the norm in front of CLIP's blocks",
        lambda on, eps=_eps: on.changes.set(_core(on).vision_model.pre_layrnorm, "eps", eps),
        "front",
    )
    CLIP.add(
        f"norms-all-{_eps:g}",
        f"an epsilon of {_eps:g} in place of 1e-05 in all norms of CLIP",
        lambda on, eps=_eps: (
            [
                on.changes.set(norm, "eps", eps)
                for norm in (_core(on).vision_model.pre_layrnorm, *on.modules(nn.LayerNorm))
            ]
            and None
        ),
        "front",
    )


@CLIP("pre-norm-before-positions", "CLIP's positions added behind the norm in front of its blocks", "front")
def _norm_first(on: Bench) -> None:
    model = _core(on).vision_model
    norm = type(model.pre_layrnorm).forward.__get__(model.pre_layrnorm)

    def embed(x: Tensor) -> Tensor:
        placed, bare = _tokens(model.embeddings, x), _tokens(model.embeddings, x, positioned="none")
        return norm(bare) + placed - bare

    on.changes.forward(model.embeddings, embed)
    on.changes.forward(model.pre_layrnorm, lambda x: x)


def _end(on: Bench, change: Callable[[Tensor, Any], Tensor]) -> None:
    model = _core(on).vision_model
    on.changes.around(model.transformer, lambda run, x: change(run(x), model))


ENDS: dict[str, tuple[str, Callable[[Tensor, Any], Tensor]]] = {
    "final-norm": ("a final norm without weights behind CLIP", lambda x, model: F.layer_norm(x, x.shape[-1:])),
    "final-pre-norm": (
        "CLIP's norm in front of its blocks run behind them as well",
        lambda x, model: model.pre_layrnorm(x),
    ),
    "end-bfloat16": ("what CLIP gives rounded to bfloat16", lambda x, model: x.bfloat16().to(x.dtype)),
    "end-float16": ("what CLIP gives rounded to float16", lambda x, model: x.half().to(x.dtype)),
    "class-dropped": ("CLIP's class token dropped too early", lambda x, model: x[:, 1:]),
    "end-unit": ("CLIP's features made of length one", lambda x, model: F.normalize(x, dim=-1)),
}
for _key, (_words, _run_end) in ENDS.items():
    CLIP.add(_key, _words, partial(_end, change=_run_end), "back")


@CLIP("last-block-left-out", "CLIP's features of a block too early, without the last one", "back")
def _early(on: Bench) -> None:
    transformer = _core(on).vision_model.transformer
    if on.notes["first"]:
        raise NotImplementedError
    on.changes.set(transformer, "layers", nn.ModuleList(on.notes["all_blocks"][:-1]))
