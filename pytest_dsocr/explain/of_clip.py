"""What-ifs of CLIP: its embeddings, its blocks and its end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.engine import clip
from pytest_dsocr.engine.sam import resize_grid
from pytest_dsocr.explain.family import Bench, Family
from pytest_dsocr.explain.flows import add_flows
from pytest_dsocr.explain.norms import add_norms
from pytest_dsocr.explain.numbers import add_activations, add_linears, add_numbers
from pytest_dsocr.explain.positions import Resize, grid_variants
from pytest_dsocr.explain.vision_attention import add_attention

CLIP = Family("clip")
"""The likeliest first."""


def _grid(on: Bench, resize: Resize) -> None:
    on.changes.set(clip, "resize_grid", resize)


for _key, _words, _resize in grid_variants():
    CLIP.add(f"positions-{_key}", f"CLIP's positions {_words}", partial(_grid, resize=_resize), "front")
add_activations(CLIP, "CLIP", "quick", lambda act, mlp, x: mlp.fc2(act(mlp.fc1(x))), clip.Mlp)
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
        own, of_grid = table[-1:].expand(batch, 1, -1), resize_grid(table[:-1].view(grid, grid, width), side)
    elif positioned == "mean-class":
        own, of_grid = table[1:].mean(0).expand(batch, 1, -1), resize_grid(table[1:].view(grid, grid, width), side)
    elif positioned == "first":
        of_grid = table[1 : 1 + side * side].view(side, side, width)
    else:
        of_grid = resize_grid(table[1:].view(grid, grid, width), side)
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
    module = on.core.vision_model.embeddings
    on.changes.forward(module, partial(_tokens, module, **how))


for _key, (_words, _how) in EMBEDDINGS.items():
    CLIP.add(_key, _words, partial(_embeds, how=_how), "front")


def _pre(on: Bench, change: Callable[..., Tensor]) -> None:
    on.changes.around(on.core.vision_model.pre_layrnorm, change)


CLIP.add("no-pre-norm", "CLIP without the norm in front of its blocks", partial(_pre, change=lambda run, x: x), "front")
CLIP.add(
    "pre-norm-twice",
    "CLIP's norm in front of its blocks run twice",
    partial(_pre, change=lambda run, x: run(run(x))),
    "front",
)
add_norms(CLIP, "CLIP", 1e-5, (1e-6, 1e-12, 1e-8, 1e-3))
add_attention(CLIP, "CLIP")
CLIP.add(
    "pre-norm-not-class",
    "CLIP's class token left out of the norm in front of its blocks",
    partial(_pre, change=lambda run, x: torch.cat([x[:, :1], run(x[:, 1:])], 1)),
    "front",
)


def _epsilons(on: Bench, eps: float, everywhere: bool) -> None:
    blocks = on.modules(nn.LayerNorm) if everywhere else ()
    for norm in (on.core.vision_model.pre_layrnorm, *blocks):
        on.changes.set(norm, "eps", eps)


for _eps in (1e-6, 1e-12, 1e-8, 1e-3):
    for _everywhere, _words in ((True, "all norms of CLIP"), (False, "the norm in front of CLIP's blocks")):
        CLIP.add(
            f"{'all-norms' if _everywhere else 'pre-norm'}-{_eps:g}",
            f"an epsilon of {_eps:g} in place of 1e-05 in {_words}",
            partial(_epsilons, eps=_eps, everywhere=_everywhere),
            "front",
        )


@CLIP("pre-norm-before-positions", "CLIP's positions added behind the norm in front of its blocks", "front")
def _norm_first(on: Bench) -> None:
    model = on.core.vision_model
    norm = type(model.pre_layrnorm).forward.__get__(model.pre_layrnorm)

    def embed(x: Tensor) -> Tensor:
        placed, bare = _tokens(model.embeddings, x), _tokens(model.embeddings, x, positioned="none")
        out: Tensor = norm(bare) + placed - bare
        return out

    on.changes.forward(model.embeddings, embed)
    on.changes.forward(model.pre_layrnorm, lambda x: x)


def _end(on: Bench, change: Callable[[Tensor, Any], Tensor]) -> None:
    model = on.core.vision_model
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
    transformer = on.core.vision_model.transformer
    if on.notes["first"]:
        raise NotImplementedError
    on.changes.set(transformer, "layers", nn.ModuleList(on.notes["all_blocks"][:-1]))
