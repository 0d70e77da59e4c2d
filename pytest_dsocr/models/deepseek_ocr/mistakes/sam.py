"""Mistakes in SAM: patches, positions, windows, relative positions, and the neck."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.base.words import joined
from pytest_dsocr.explain.catalogue import blocks
from pytest_dsocr.explain.catalogue.blocks import ACTIVATIONS, NOT_FINITE, TensorChange, normed, rounded, rounding
from pytest_dsocr.explain.catalogue.numbers import add_numbers
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row, inside, kin, sets, wraps
from pytest_dsocr.layers import sam
from pytest_dsocr.models.deepseek_ocr.mistakes.encoders import add_attention, grid_variants, line_variants

Bias = Callable[..., Tensor]
"""Compute the bias of relative positions from queries ``[B, N, P, D]``, a height and a width."""


def sam_mistakes() -> Group:
    """Return the mistakes of SAM, the likeliest first."""
    group = Group("sam", NOT_FINITE)
    blocks.add_activations(group, "SAM", "erf", lambda act, mlp, x: mlp.lin2(act(mlp.lin1(x))), sam.SamMlp)
    blocks.add_linears(group, "SAM", ("attn.qkv", "attn.proj", "mlp.lin1", "mlp.lin2"), ("attn.proj",))
    group.rows(
        "relative", dict(line_variants()), sets(sam, "resize_line"), words="SAM's tables of relative positions {}"
    )
    group.rows("relative", BIASES, wraps(inside(sam.SamAttention), name="position_bias"))
    group.rows("relative", RELATIVE, _relative, words="{} in SAM")
    for name, (words, by) in MOVED.items():
        group.add(name, words, partial(_moved, by=by), "wide", kind="global-moved", spans_blocks=True)
    group.rows("", WINDOWS, lambda on, plant: plant(on), "wide")
    blocks.add_norms(group, "SAM", 1e-6, (1e-5, 1e-12, 1e-8, 1e-3))
    add_attention(group, "SAM")
    blocks.add_flows(group, "SAM")
    add_numbers(group, "SAM")
    group.rows("positions", dict(grid_variants()), sets(sam, "resize_grid"), "front", "SAM's absolute positions {}")
    pixels = wraps(lambda on: [on.core.sam_model.patch_embed], lambda run, change, x: run(change(x)))
    group.rows("pixels", PIXELS, pixels, "front", "{} in front of SAM")
    group.rows("patches", PATCHES, _patches, "front")
    group.add("patches-no-bias", "the patches without their bias", _no_patch_bias, "front", kind="patches")
    words = "SAM's patches in the order of the columns"
    group.add("patches-by-column", words, _patches_turned, "front", kind="patches")
    for key, row in CONVOLUTIONS.items():
        for which in (("net_2", "net_3"), ("net_2",), ("net_3",), ("neck.2",), ("neck.2", "net_2", "net_3")):
            words = f"SAM's {joined(which)} {{}}"
            group.rows("-".join(which), {key: row}, partial(_convolutions, which), "back", words)
    for key, name, own in (("gelu", "GELU", "erf"), ("relu", "ReLU", "relu"), ("silu", "SiLU", "silu")):
        for kind, (where, path) in BEHIND.items():
            plant = partial(_behind, path=path, act=ACTIVATIONS[own].how)
            group.add(f"{kind}-{key}", f"{name} {where}", plant, "back", kind=kind)
    for key, row in NECK_NORMS.items():
        for places, name in (((1, 3), "norms"), ((1,), "first norm"), ((3,), "second norm")):
            of_places = {f"{key}-{len(places)}{places[0]}": row}
            words = f"the {name} of SAM's neck {{}}"
            group.rows("neck-norm", of_places, partial(_neck_norms, places), "back", words)
    group.add("neck-turned", "SAM's rows and columns exchanged in front of the neck", _neck_turned, "back")
    group.add("neck-not-loaded", "the weights of SAM's neck never loaded", _neck_not_loaded, "back")
    return group


def _relative(on: Target, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
    for module in on.modules(sam.SamAttention):
        tables = module.rel_pos_h, module.rel_pos_w
        for table, values in zip(tables, change(*(table.data for table in tables)), strict=True):
            on.changes.weight(table, values)


RELATIVE: dict[str, tuple[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]] = {
    "missing": ("no relative positions", lambda rows, columns: (0 * rows, 0 * columns)),
    "exchanged": ("the relative positions of rows and columns exchanged", lambda rows, columns: (columns, rows)),
    "no-rows": ("no relative positions of rows", lambda rows, columns: (0 * rows, columns)),
    "no-columns": ("no relative positions of columns", lambda rows, columns: (rows, 0 * columns)),
    "backwards": (
        "relative positions of the key's place less the query's, not the other way round",
        lambda rows, columns: (rows.flip(0), columns.flip(0)),
    ),
    "rows-twice": ("the relative positions of rows for columns as well", lambda rows, columns: (rows, rows)),
}


BIASES: MistakeTable = {
    "of-scaled": (
        "SAM's relative positions computed from the scaled query",
        lambda bias, q, height, width: bias(q / q.shape[-1] ** 0.5, height, width),
    ),
    **rounding(
        "SAM's bias of relative positions rounded to {}", lambda change: lambda bias, *place: change(bias(*place))
    ),
}


def _windowed(on: Target) -> list[Any]:
    return [block for block in on.modules(sam.SamBlock) if block.window]


def _windows(on: Target, size: int, everywhere: bool = False) -> None:
    for block in on.modules(sam.SamBlock) if everywhere else _windowed(on):
        on.changes.set(block, "window", size)


def _moved(on: Target, by: int) -> None:
    """Give each block the window of another one of the stage; a block without one has the usual window."""
    windows = [block.window for block in on.all_blocks]
    known = {id(block): place for place, block in enumerate(on.all_blocks)}
    for block in on.blocks:
        place = known[id(block)] + by
        on.changes.set(block, "window", windows[place] if 0 <= place < len(windows) else max(windows))


def _pads(on: Target, mode: str = "constant", share: float = 0.0) -> None:
    """Pad with a mode of ``F.pad``, and put a share of the padding before the windows."""
    split, join = sam.split_windows, sam.join_windows

    def padded(x_BHWC: Tensor, window: int) -> Tensor:
        height, width = (-side % window for side in x_BHWC.shape[1:3])
        top, left = int(height * share), int(width * share)
        out = F.pad(x_BHWC.permute(0, 3, 1, 2), (left, width - left, top, height - top), mode=mode)
        return split(out.permute(0, 2, 3, 1), window)

    def joined(windows: Tensor, height: int, width: int) -> Tensor:
        top, left = (int(-side % windows.shape[1] * share) for side in (height, width))
        return join(windows, height + top, width + left)[:, top:, left:]

    on.changes.set(sam, "split_windows", padded)
    on.changes.set(sam, "join_windows", joined)


def _norm_of_padding(on: Target) -> None:
    for block in _windowed(on):
        norm = type(block.norm1).forward.__get__(block.norm1)
        on.changes.forward(block.norm1, lambda x: x)
        on.changes.around(block.attn, lambda run, x, norm=norm: run(norm(x)))


def _padding_hidden(on: Target) -> None:
    split, state = sam.split_windows, dict[str, Tensor]()

    def marked(x: Tensor, window: int) -> Tensor:
        state["hidden"] = split(torch.ones_like(x[..., :1]), window).flatten(1, 2)[..., 0] == 0
        return split(x, window)

    def biased(bias: Bias, q: Tensor, height: int, width: int) -> Tensor:
        return bias(q, height, width).masked_fill(state["hidden"][:, None, None, :], torch.finfo(q.dtype).min)

    on.changes.set(sam, "split_windows", marked)
    for block in _windowed(on):
        on.changes.set(block.attn, "position_bias", partial(biased, block.attn.position_bias))


def _shifted(on: Target, by: int = 7) -> None:
    def rolled(run: TensorChange, x: Tensor) -> Tensor:
        return run(x.roll((-by, -by), (1, 2))).roll((by, by), (1, 2))

    for block in _windowed(on):
        on.changes.set(block, "attend", partial(rolled, block.attend))


def _by_column(on: Target) -> None:
    join = sam.join_windows

    def joined(windows: Tensor, height: int, width: int) -> Tensor:
        rows, columns = (-(-side // windows.shape[1]) for side in (height, width))
        return join(windows.unflatten(0, (-1, columns, rows)).transpose(1, 2).flatten(0, 2), height, width)

    on.changes.set(sam, "join_windows", joined)


MOVED = {
    "global-early": ("each block of SAM attending as the next one should, so that global attention is one early", 1),
    "global-late": ("each block of SAM attending as the one before should, so that global attention is one late", -1),
}
"""Global attention in blocks whose numbers are off by one, with the distance of the block that each attends as."""
WINDOWS: MistakeTable = {
    "global-everywhere": (
        "a block of SAM attending to the whole view that should keep to its windows",
        partial(_windows, size=0),
    ),
    "windows-everywhere": (
        "a block of SAM keeping to windows that should attend to the whole view",
        partial(_windows, size=14, everywhere=True),
    ),
    **kin("windows", {f"{n}": (f"windows of {n} in SAM", partial(_windows, size=n)) for n in (7, 8, 10, 12, 16)}),
    "pad-before": ("SAM's windows padded in front, not behind", partial(_pads, share=1.0)),
    "pad-middle": ("SAM's windows padded on both sides", partial(_pads, share=0.5)),
    "pad-replicate": ("SAM's windows padded with the last row and column", partial(_pads, mode="replicate")),
    "pad-reflect": ("SAM's windows padded by reflection", partial(_pads, mode="reflect")),
    "pad-circular": ("SAM's windows padded from the other end", partial(_pads, mode="circular")),
    "pad-in-front-of-norm": (
        "SAM's windows padded in front of the norm, so that its biases take the place of zeros",
        _norm_of_padding,
    ),
    "pad-hidden": ("SAM's padding hidden from attention", _padding_hidden),
    "windows-shifted": ("SAM's windows shifted by half of their size", _shifted),
    "windows-by-column": ("SAM's windows put back column by column", _by_column),
}
PIXELS: MistakeTable = {
    "turned": ("the pixels' rows and columns exchanged", lambda x: x.transpose(2, 3)),
    "normalised-twice": ("the pixels normalised a second time", lambda x: (x - 0.5) / 0.5),
    "shares": ("pixels from 0 to 1", lambda x: x * 0.5 + 0.5),
    "float16": Row("the pixels rounded to float16", partial(rounded, dtype=torch.float16), "float16"),
}
PATCHES: MistakeTable = {
    "turned": ("rows and columns of the patches' weights exchanged", lambda w: w.transpose(2, 3)),
    "bgr": ("the patches' weights in the order blue, green, red", lambda w: w.flip(1)),
    "flipped": ("the patches' weights turned by 180 degrees, as of a true convolution", lambda w: w.flip(2, 3)),
    "channels-last": (
        "the patches' weights read with the channels last",
        lambda w: w.flatten(1).unflatten(1, (*w.shape[2:], w.shape[1])).permute(0, 3, 1, 2),
    ),
    **rounding("the patches' weights rounded to {}"),
}


def _patches(on: Target, change: TensorChange) -> None:
    weight = on.core.sam_model.patch_embed.proj.weight
    on.changes.weight(weight, change(weight.data))


def _no_patch_bias(on: Target) -> None:
    bias = on.core.sam_model.patch_embed.proj.bias
    on.changes.weight(bias, torch.zeros_like(bias))


def _patches_turned(on: Target) -> None:
    on.changes.around(on.core.sam_model.patch_embed, lambda run, x: run(x).transpose(1, 2))


def _conv(
    conv: Any,
    x: Tensor,
    *,
    pad: tuple[int, int, int, int] = (1, 1, 1, 1),
    mode: str = "constant",
    weight: TensorChange = lambda w: w,
) -> Tensor:
    return F.conv2d(F.pad(x, pad, mode=mode), weight(conv.weight), stride=conv.stride)


CONVOLUTIONS: MistakeTable = {
    "pad-behind": ('padded behind only, as TensorFlow\'s "same" does', partial(_conv, pad=(0, 1, 0, 1))),
    "pad-front": ("padded in front only", partial(_conv, pad=(1, 0, 1, 0))),
    "pad-replicate": ("padded with the edges repeated", partial(_conv, mode="replicate")),
    "pad-reflect": ("padded by reflection", partial(_conv, mode="reflect")),
    "flipped": ("with weights turned by 180 degrees", partial(_conv, weight=lambda w: w.flip(2, 3))),
    "turned": ("with rows and columns of the weights exchanged", partial(_conv, weight=lambda w: w.transpose(2, 3))),
    "bfloat16": Row(
        "computed in bfloat16",
        lambda conv, x: rounded(_conv(conv, rounded(x, torch.bfloat16)), torch.bfloat16),
        "bfloat16",
    ),
}
BEHIND = {
    "between": ("behind net_2 of SAM", "net_2"),
    "end": ("behind net_3 of SAM", "net_3"),
    "neck": ("between the convolutions of SAM's neck", "neck.1"),
    "neck-end": ("behind SAM's neck", "neck.3"),
}


def _convolutions(which: tuple[str, ...], on: Target, run: Callable[[Any, Tensor], Tensor]) -> None:
    for conv in map(on.core.sam_model.get_submodule, which):
        on.changes.forward(conv, partial(run, conv))


def _behind(on: Target, path: str, act: TensorChange) -> None:
    on.changes.around(on.core.sam_model.get_submodule(path), lambda run, x: act(run(x)))


NECK_NORMS: MistakeTable = {
    "missing": ("left out", None),
    "over-places": ("over the places, not the channels", {"dim": (2, 3)}),
    "over-rows": ("over rows, not channels", {"dim": 2}),
    "over-columns": ("over columns, not channels", {"dim": 3}),
    "over-all": ("over places and channels together", {"dim": (1, 2, 3)}),
    "unbiased": Row("whose variance is over one channel less", {"unbiased": True}, is_small=True),
    "no-weight": ("without weights", {"gain": False}),
    "no-bias": ("without biases", {"shift": False}),
    "plain": ("without weights and biases", {"gain": False, "shift": False}),
    "rms": ("without the mean taken away", {"other": True}),
    "outside": Row("whose epsilon is added to the root", {"outside": True}, is_small=True),
    "bfloat16": Row("computed in bfloat16", {"dtype": torch.bfloat16}, "bfloat16"),
    **{
        f"{n:g}": Row(f"with an epsilon of {n:g} in place of 1e-06", {"eps": n}, is_small=True)
        for n in (1e-5, 1e-12, 1e-3, 1e-8)
    },
}


def _neck_norms(which: tuple[int, ...], on: Target, how: dict[str, Any] | None) -> None:
    for norm in [on.core.sam_model.neck[index] for index in which]:
        on.changes.forward(norm, partial(normed, norm, **{"dim": 1, **how}) if how else lambda x: x)


def _neck_turned(on: Target) -> None:
    on.changes.around(on.core.sam_model.neck[0], lambda run, x: run(x.transpose(2, 3)))


def _neck_not_loaded(on: Target) -> None:
    weight = on.core.sam_model.neck[2].weight
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    on.changes.weight(weight, 0.02 * noise.to(weight.device))
