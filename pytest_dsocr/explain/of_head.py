"""What-ifs of the decoder's last norm and of the head that gives logits."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.explain.family import Bench
from pytest_dsocr.explain.of_decoder import PREFILL, capped


def _norm_run(on: Bench, change: Callable[..., Tensor]) -> None:
    on.changes.around(on.model.model.norm, change)


def _head(on: Bench, change: Callable[[Any, Callable[..., Tensor], Tensor], Tensor]) -> None:
    on.changes.around(on.model.lm_head, lambda run, x: change(on.model, run, x))


def _from_another(on: Bench, at: Callable[[Bench, int], int]) -> None:
    model = on.model

    def decode(embeds: Tensor, cache: KVCache, *, all_logits: bool = False) -> Tensor:
        hidden = model.model.decode(embeds, cache)
        place = at(on, hidden.shape[1]) if hidden.shape[1] > 1 else 0
        logits: Tensor = model.lm_head(hidden[:, place : place + 1])
        return logits

    on.changes.set(model, "decode", decode)


def _epsilon(on: Bench, eps: float) -> None:
    on.changes.set(on.model.model.norm, "eps", eps)


PREFILL.add(
    "no-last-norm", "no norm behind the decoder's last layer", partial(_norm_run, change=lambda run, x: x), "back"
)
PREFILL.add("last-norm-twice", "the last norm run twice", partial(_norm_run, change=lambda run, x: run(run(x))), "back")
for _eps in (1e-5, 1e-12, 1e-3):
    PREFILL.add(
        f"last-norm-{_eps:g}",
        f"an epsilon of {_eps:g} in place of 1e-06 in the last norm",
        partial(_epsilon, eps=_eps),
        "back",
    )
PREFILL.add(
    "last-norm-plain",
    "the last norm without its weights",
    partial(_norm_run, change=lambda run, x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)),
    "back",
)
PREFILL.add(
    "last-norm-one-more",
    "the last norm scaling by one plus its weights",
    lambda on: on.changes.weight(on.model.model.norm.weight, on.model.model.norm.weight.data + 1),
    "back",
)
HEADS: dict[str, tuple[str, Callable[[Any, Callable[..., Tensor], Tensor], Tensor]]] = {
    "tied": (
        "the embeddings in the place of the head's weights (tied)",
        lambda model, run, x: F.linear(x, model.model.embed_tokens.weight).float(),
    ),
    "bfloat16": (
        "the head computed in bfloat16",
        lambda model, run, x: F.linear(x.bfloat16(), model.lm_head.weight.bfloat16()).float(),
    ),
    "float16": (
        "the head computed in float16",
        lambda model, run, x: F.linear(x.half(), model.lm_head.weight.half()).float(),
    ),
    "logits-bfloat16": ("logits rounded to bfloat16", lambda model, run, x: run(x).bfloat16().float()),
    "logits-float16": ("logits rounded to float16", lambda model, run, x: run(x).half().float()),
    "weights-bfloat16": (
        "the head's weights rounded to bfloat16",
        lambda model, run, x: F.linear(x, model.lm_head.weight.bfloat16().to(x.dtype)).float(),
    ),
    "scaled": ("logits divided by the root of the width", lambda model, run, x: run(x) / x.shape[-1] ** 0.5),
    "multiplied": ("logits multiplied by the root of the width", lambda model, run, x: run(x) * x.shape[-1] ** 0.5),
    "cap-30": ("logits capped at 30", lambda model, run, x: capped(run(x), 30.0)),
    "cap-50": ("logits capped at 50", lambda model, run, x: capped(run(x), 50.0)),
    "softmax": ("probabilities in the place of logits", lambda model, run, x: run(x).softmax(-1)),
    "log-softmax": ("logarithms of probabilities in the place of logits", lambda model, run, x: run(x).log_softmax(-1)),
    "one-off": ("logits one token off", lambda model, run, x: run(x).roll(1, -1)),
    "one-off-other": ("logits one token too early", lambda model, run, x: run(x).roll(-1, -1)),
}
for _key, (_words, _run) in HEADS.items():
    PREFILL.add(f"head-{_key}", _words, partial(_head, change=_run), "back")
PLACES: dict[str, tuple[str, Callable[[Bench, int], int]]] = {
    "last-but-one": ("the logits behind the prompt's last token but one", lambda on, length: length - 2),
    "first": ("the logits behind the prompt's first token", lambda on, length: 0),
    "image-end": ("the logits behind the last image token", lambda on, length: on.prompt_image[1] - 1),
}
for _key, (_words, _at) in PLACES.items():
    PREFILL.add(f"logits-{_key}", _words, partial(_from_another, at=_at), "back")


@PREFILL("last-layer-left-out", "the decoder's last layer left out", "back")
def _no_last(on: Bench) -> None:
    if on.notes["first"]:
        raise NotImplementedError
    on.changes.set(on.model.model, "layers", nn.ModuleList(on.notes["all_blocks"][:-1]))
