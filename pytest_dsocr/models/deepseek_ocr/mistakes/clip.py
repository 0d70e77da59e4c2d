"""Mistakes in CLIP: its embeddings, its blocks and its end."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.compare.verdict import Symptom
from pytest_dsocr.explain.catalogue import blocks
from pytest_dsocr.explain.catalogue.blocks import NOT_FINITE, TensorChange, rounding
from pytest_dsocr.explain.catalogue.numbers import add_numbers
from pytest_dsocr.explain.mistake import Target
from pytest_dsocr.explain.rows import Group, MistakeTable, Row, kin, runs, sets, wraps
from pytest_dsocr.layers.sam import resize_grid
from pytest_dsocr.models.deepseek_ocr import clip, model
from pytest_dsocr.models.deepseek_ocr.mistakes.encoders import add_attention, grid_variants
from pytest_dsocr.models.deepseek_ocr.model import beside

EPSILONS = (1e-6, 1e-12, 1e-8, 1e-3)


def clip_mistakes() -> Group:
    """Return the mistakes of CLIP, the likeliest first."""
    group = Group("clip", {**NOT_FINITE, Symptom.SHUFFLED: ("features-turned",)})
    group.rows("positions", dict(grid_variants()), sets(clip, "resize_grid"), "front", "CLIP's positions {}")
    blocks.add_activations(group, "CLIP", "quick", lambda act, mlp, x: mlp.fc2(act(mlp.fc1(x))), clip.ClipMlp)
    linears = ("self_attn.qkv_proj", "self_attn.out_proj", "mlp.fc1", "mlp.fc2")
    blocks.add_linears(group, "CLIP", linears, ("self_attn.out_proj",))
    blocks.add_flows(group, "CLIP")
    add_numbers(group, "CLIP")
    embeds = runs(lambda on: [on.core.vision_model.embeddings], lambda module, how, x: _tokens(module, x, **how))
    group.rows("", EMBEDDINGS, embeds, "front")
    group.add("class-none", "CLIP without a class token", _classless, "front")
    group.rows("", PRE_NORMS, wraps(lambda on: [on.core.vision_model.pre_layrnorm]), "front")
    blocks.add_norms(group, "CLIP", 1e-5, EPSILONS)
    add_attention(group, "CLIP")
    for eps in EPSILONS:
        for key, where in (("all-norms", "all norms of CLIP"), ("pre-norm", "the norm in front of CLIP's blocks")):
            words = f"an epsilon of {eps:g} in place of 1e-05 in {where}"
            plant = partial(_epsilons, eps=eps, everywhere=key == "all-norms")
            group.add(f"{key}-{eps:g}", words, plant, "front", kind=key, is_small=True)
    words = "CLIP's positions added behind the norm in front of its blocks"
    group.add("pre-norm-before-positions", words, _norm_first, "front")
    group.rows("", ENDS, _end, "back")
    group.add(
        "last-block-left-out", "CLIP's features taken one block too early, without the last block", _early, "back"
    )
    return group


def _flat(x: Tensor) -> Tensor:
    return x.flatten(2).transpose(1, 2)


def _tokens(
    module: Any, x: Tensor, *, class_at: str = "front", positioned: str = "all", order: TensorChange = _flat
) -> Tensor:
    """Embed SAM's features as a port may do."""
    batch, width, side, _ = x.shape
    table = module.position_embedding.weight
    own, of_patches = (table[-1:], table[:-1]) if positioned == "end-class" else (table[:1], table[1:])
    grid = int(len(of_patches) ** 0.5)
    of_grid = resize_grid(of_patches.view(grid, grid, width), side).reshape(-1, width)
    if positioned == "none":
        of_grid = 0 * of_grid
    if positioned in ("none", "grid"):
        own = 0 * own
    token = module.class_embedding.expand(batch, 1, -1) * (class_at != "zero") + own
    patches = order(x) + of_grid
    return torch.cat({"end": [patches, token], "nowhere": [patches]}.get(class_at, [token, patches]), 1)


EMBEDDINGS: MistakeTable = {
    "class-last": ("CLIP's class token behind the patches", {"class_at": "end"}),
    "class-zero": ("CLIP's class token of zeros", {"class_at": "zero"}),
    "class-unplaced": ("CLIP's class token without a position", {"positioned": "grid"}),
    "unplaced": ("CLIP without positions", {"positioned": "none"}),
    "class-position-last": Row(
        "the last of CLIP's positions taken for the class token's", {"positioned": "end-class"}, needs_crops=True
    ),
    "features-turned": ("SAM's features given to CLIP column by column", {"order": lambda x: _flat(x.transpose(2, 3))}),
    "features-reshaped": (
        "SAM's features reshaped for CLIP, channels not moved behind places",
        {"order": lambda x: x.reshape(len(x), -1, x.shape[1])},
    ),
    **kin(
        "features",
        rounding("SAM's features rounded to {} in front of CLIP", lambda change: {"order": lambda x: change(_flat(x))}),
    ),
    "features-normed": (
        "SAM's features normed in front of CLIP's embeddings",
        {"order": lambda x: F.layer_norm(_flat(x), x.shape[1:2])},
    ),
}
PRE_NORMS: MistakeTable = {
    "no-pre-norm": ("CLIP without the norm in front of its blocks", lambda run, x: x),
    "pre-norm-twice": ("CLIP's norm in front of its blocks run twice", lambda run, x: run(run(x))),
    "pre-norm-not-class": (
        "CLIP's class token left out of the norm in front of its blocks",
        lambda run, x: torch.cat([x[:, :1], run(x[:, 1:])], 1),
    ),
}
ENDS: MistakeTable = {
    "final-norm": ("a final norm without weights behind CLIP", lambda x, model: F.layer_norm(x, x.shape[-1:])),
    "final-pre-norm": (
        "CLIP's norm in front of its blocks run behind them as well",
        lambda x, model: model.pre_layrnorm(x),
    ),
    **kin("end", rounding("CLIP's output rounded to {}", lambda change: lambda x, model: change(x))),
    "class-dropped": ("CLIP's class token dropped too early", lambda x, model: x[:, 1:]),
    "end-unit": ("CLIP's features made of length one", lambda x, model: F.normalize(x, dim=-1)),
}


def _classless(on: Target) -> None:
    module = on.core.vision_model.embeddings
    on.changes.forward(module, partial(_tokens, module, class_at="nowhere"))
    on.changes.set(model, "beside", lambda clip, sam: beside(F.pad(clip, (0, 0, 1, 0)), sam))


def _epsilons(on: Target, eps: float, everywhere: bool) -> None:
    for norm in (on.core.vision_model.pre_layrnorm, *(on.modules(nn.LayerNorm) if everywhere else ())):
        on.changes.set(norm, "eps", eps)


def _norm_first(on: Target) -> None:
    model = on.core.vision_model
    norm = type(model.pre_layrnorm).forward.__get__(model.pre_layrnorm)

    def embed(x: Tensor) -> Tensor:
        placed, bare = _tokens(model.embeddings, x), _tokens(model.embeddings, x, positioned="none")
        out: Tensor = norm(bare) + placed - bare
        return out

    on.changes.forward(model.embeddings, embed)
    on.changes.forward(model.pre_layrnorm, lambda x: x)


def _end(on: Target, change: Callable[[Tensor, Any], Tensor]) -> None:
    model = on.core.vision_model
    on.changes.around(model.transformer, lambda run, x: change(run(x), model))


def _early(on: Target) -> None:
    on.changes.set(on.core.vision_model.transformer, "layers", nn.ModuleList(on.all_blocks[:-1]))
