"""What-ifs in front of SAM's blocks, and of its neck behind them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.engine import sam
from pytest_dsocr.explain.family import Bench
from pytest_dsocr.explain.numbers import DTYPES
from pytest_dsocr.explain.of_sam import SAM
from pytest_dsocr.explain.positions import Resize, grid_variants


def _grid(on: Bench, resize: Resize) -> None:
    on.changes.set(sam, "resize_grid", resize)


for _key, _words, _resize in grid_variants():
    SAM.add(f"positions-{_key}", f"SAM's absolute positions {_words}", partial(_grid, resize=_resize), "front")

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
    on.changes.around(on.core.sam_model.patch_embed, lambda run, x: run(change(x)))


def _patches(on: Bench, change: Callable[[Tensor], Tensor]) -> None:
    weight = on.core.sam_model.patch_embed.proj.weight
    on.changes.weight(weight, change(weight.data))


def _half(w: Tensor, dtype: torch.dtype) -> Tensor:
    return w.to(dtype).to(w.dtype)


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
        partial(_patches, change=partial(_half, dtype=_dtype)),
        "front",
    )


@SAM("patches-no-bias", "the patches without their bias", "front")
def _no_patch_bias(on: Bench) -> None:
    bias = on.core.sam_model.patch_embed.proj.bias
    on.changes.weight(bias, torch.zeros_like(bias))


@SAM("patches-by-column", "SAM's patches in the order of the columns", "front")
def _patches_turned(on: Bench) -> None:
    on.changes.around(on.core.sam_model.patch_embed, lambda run, x: run(x).transpose(1, 2))


def _neck(on: Bench, index: int, run: Callable[..., Tensor]) -> None:
    on.changes.around(on.core.sam_model.neck[index], run)


def _down(on: Bench, name: str, change: Callable[[Any, Tensor], Tensor]) -> None:
    conv = getattr(on.core.sam_model, name)
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
    "pad-behind": ('padded behind only, as TensorFlow\'s "same" does', partial(_conv, pad=(0, 1, 0, 1))),
    "pad-front": ("padded in front only", partial(_conv, pad=(1, 0, 1, 0))),
    "pad-replicate": ("padded with the last row and column", partial(_conv, mode="replicate")),
    "pad-reflect": ("padded by reflection", partial(_conv, mode="reflect")),
    "flipped": ("with its weights turned by 180 degrees", partial(_conv, flip=True)),
    "turned": ("with rows and columns of its weights exchanged", partial(_conv, turned=True)),
    "bfloat16": ("computed in bfloat16", lambda conv, x: _conv(conv, x.bfloat16().to(x.dtype)).bfloat16().to(x.dtype)),
}


def _convolutions(on: Bench, change: Callable[[Any, Tensor], Tensor], which: tuple[str, ...]) -> None:
    model = on.core.sam_model
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


def _activated(act: Callable[[Tensor], Tensor], conv: Any, x: Tensor) -> Tensor:
    return act(_conv(conv, x))


def _behind(act: Callable[[Tensor], Tensor], run: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    return act(run(x))


ACTIVATED: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "gelu": ("GELU", F.gelu),
    "relu": ("ReLU", F.relu),
    "silu": ("SiLU", F.silu),
}
for _key, (_words, _act) in ACTIVATED.items():
    SAM.add(
        f"between-{_key}",
        f"{_words} behind net_2 of SAM",
        partial(_down, name="net_2", change=partial(_activated, _act)),
        "back",
    )
    SAM.add(
        f"end-{_key}",
        f"{_words} behind net_3 of SAM",
        partial(_down, name="net_3", change=partial(_activated, _act)),
        "back",
    )
    SAM.add(
        f"neck-{_key}",
        f"{_words} between the convolutions of SAM's neck",
        partial(_neck, index=1, run=partial(_behind, _act)),
        "back",
    )
    SAM.add(
        f"neck-end-{_key}",
        f"{_words} behind SAM's neck",
        partial(_neck, index=3, run=partial(_behind, _act)),
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
    variance = x.var(dims, keepdim=True, correction=correction) if centred else x.pow(2).mean(dims, keepdim=True)
    eps = norm.eps if eps is None else eps
    normal = middle / (variance.sqrt() + eps if outside else torch.sqrt(variance + eps))
    weight, bias = norm.weight[:, None, None], norm.bias[:, None, None]
    return normal * (1 if "weight" in plain else weight) + (0 if "bias" in plain else bias)


NECK_NORMS: dict[str, tuple[str, Callable[[Any, Tensor], Tensor]]] = {
    "missing": ("left out", lambda norm, x: x),
    "over-places": ("over the places, not the channels", partial(_neck_norm, dims=(2, 3))),
    "over-rows": ("over rows, not channels", partial(_neck_norm, dims=(2,))),
    "over-columns": ("over columns, not channels", partial(_neck_norm, dims=(3,))),
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
        norm = on.core.sam_model.neck[index]
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
