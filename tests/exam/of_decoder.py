"""Mistakes in the decoder: on the prompt, in steps, their cache, the choice of tokens; and in what is made of these."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from pytest_dsocr.contract import artifacts, drawing
from pytest_dsocr.contract.markup import Box, PixelBox
from pytest_dsocr.contract.policy import NgramBan
from pytest_dsocr.engine import attention, pipeline
from pytest_dsocr.engine.attention import eager
from pytest_dsocr.engine.cache import KVCache
from pytest_dsocr.engine.experts import MixtureOfExperts, Router
from pytest_dsocr.engine.model import Core
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.subjects.session import SessionSubject
from tests.exam.planting import FIGURES, TALL, core_of, instead, mistake, run_instead

CHUNK, BUCKET, SPLIT, RECENT, PENALTY = 512, 64, 256, 64, 1.1


def attend_by(patch: pytest.MonkeyPatch, subject: SessionSubject, attend: Any) -> None:
    """Change how every layer attends, to its ``q``, ``k`` and ``v`` and the lengths of rows."""
    for layer in core_of(subject).decoder_layers():
        patch.setattr(layer.self_attn, "attend", attend)


@mistake("THD-27", "Later chunks of a prompt see its beginning alone", "prefill", "a prompt of more than 512 tokens")
def chunks_at_the_top(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Prompts are read in chunks, whose causal masks begin at the first key, as in flash-attn before 2.1, and so do
    not end at the last."""

    def attend(q: Tensor, k: Tensor, v: Tensor, lengths: Any) -> Tensor:
        if q.shape[2] <= CHUNK:
            return eager(q, k, v, lengths)
        at = torch.arange(q.shape[2], device=q.device)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=at <= (at % CHUNK)[:, None])

    attend_by(patch, subject, attend)


@mistake("THD-28", "The first layer's residual is normed", "prefill")
def normed_residual(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Norms are fused with the sum before them; the first one has none, and its output is kept as the residual."""
    layer = core_of(subject).decoder_layers()[0]

    def forward(x: Tensor, *rest: Any) -> Any:
        x = layer.input_layernorm(x)
        x = x + layer.self_attn(x, *rest)
        return x + layer.mlp(layer.post_attention_layernorm(x))

    run_instead(patch, layer, forward)


@mistake("THD-29", "Experts get weighted inputs", "prefill")
def weighted_inputs(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The fused kernel is told to apply the router's weight to what an expert reads, not to what it gives."""

    def forward(self: MixtureOfExperts, x: Tensor) -> Any:
        chosen, weights = self.gate(x.flatten(0, -2))
        rows = (x.flatten(0, -2)[:, None] * weights[..., None].to(x.dtype)).flatten(0, 1)
        out = self.run_looped(rows, chosen.reshape(-1, 1)).unflatten(0, chosen.shape).sum(dim=1)
        return out.view_as(x) + self.shared_experts(x)

    patch.setattr(MixtureOfExperts, "forward", forward)


@mistake("THD-30", "Experts that are full drop tokens", "prefill", "a prompt that asks much of one expert")
def full_experts(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Each expert has a buffer for 1.5 times its even share of the tokens, and those that come later get nothing."""

    def forward(right: Any, self: Router, x: Tensor) -> tuple[Tensor, Tensor]:
        chosen, weights = right(self, x)
        flat, experts = chosen.flatten(), len(self.weight)
        places = F.one_hot(flat, experts).cumsum(dim=0).gather(1, flat[:, None]).view_as(chosen)
        return chosen, weights * (places <= math.ceil(1.5 * len(flat) / experts))

    instead(patch, Router, "forward", forward)


@mistake("THD-31", "The first logits are those of the padding", "prefill", "a prompt of no multiple of 64 tokens")
def last_of_bucket(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Prompts are padded to buckets of 64; the cache is cut back, but logits are read at the bucket's last position."""
    padding = core_of(subject).embed_tokens.weight[subject.session.tokenizer.special.pad]

    def decode(right: Any, self: Core, x: Tensor, cache: KVCache) -> Tensor:
        tokens = x.shape[1]
        more = -tokens % BUCKET if tokens > 1 else 0
        hidden = right(self, torch.cat([x, padding.expand(len(x), more, -1)], dim=1), cache)
        cache.advance(-more)
        return torch.cat([hidden[:, : tokens - 1], hidden[:, -1:]], dim=1)

    instead(patch, Core, "decode", decode)


@mistake("THD-32", "A prompt is taken for an earlier page's", "prefill", "a second page of the same grid")
def prefix_by_ids(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The cache of prefixes is looked up by ids, and all image tokens have the same: a later page of the same grid
    goes on from what was seen of the first."""
    kept: dict[Any, Tensor] = {}

    def prefill_with(right: Any, self: Any, inputs: Any, features: Tensor | None, **options: Any) -> Any:
        if features is not None:
            features = kept.setdefault(tuple(inputs.input_ids[0].tolist()), features.clone())
        return right(self, inputs, features, **options)

    instead(patch, Pipeline, "prefill_with", prefill_with)


@mistake("THD-33", "Parts of the cache are joined without their maxima", "decode", "more than 256 positions")
def unscaled_parts(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """A step's attention is split over parts of 256 positions; each subtracts its own maximum, and the kernel that
    joins them does not scale them to one."""

    def attend(q: Tensor, k: Tensor, v: Tensor, lengths: Any) -> Tensor:
        if q.shape[2] > 1 or lengths is not None:
            return eager(q, k, v, lengths)
        parts = (q @ k.transpose(2, 3) * q.shape[-1] ** -0.5).split(SPLIT, dim=-1)
        weights = torch.cat([(part - part.amax(dim=-1, keepdim=True)).exp() for part in parts], dim=-1)
        return weights @ v / weights.sum(dim=-1, keepdim=True)

    attend_by(patch, subject, attend)


@mistake("THD-34", "A cache that grows loses its last position", "decode", "a page that outgrows 1024 positions")
def lost_as_it_grew(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """What is copied to the larger buffer ends one position too early, and zeros stand there from then on."""

    def with_room(right: Any, self: KVCache, buffer: Tensor | None, *rest: Any) -> Any:
        made = right(self, buffer, *rest)
        if buffer is not None and made is not buffer:
            made[:, :, self.length - 1] = 0
        return made

    instead(patch, KVCache, "_with_room", with_room)


@mistake("THD-35", "What was said of earlier pages is banned", "read", "a page that repeats one read before")
def bans_kept(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The server makes the n-gram rule once, and not for each page: what any page said may not be said again."""
    kept: dict[int, NgramBan] = {}

    def ban(size: int, tokens: Any = ()) -> NgramBan:
        own = kept.setdefault(size, NgramBan(size))
        for token in tokens:
            own.push(token)
        return own

    patch.setattr(pipeline, "NgramBan", ban)


@mistake("THD-36", "Repetition is penalised", "decode")
def penalised(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """The server's default of 1.1 is left on: logits of the last 64 tokens said are made smaller."""

    def decode_step(right: Any, self: Any, state: Any, tokens: Any) -> Any:
        logits, said = right(self, state, tokens), vars(state).setdefault("said", [])
        said += tokens
        own = logits[:, said[-RECENT:]]
        logits[:, said[-RECENT:]] = torch.where(own > 0, own / PENALTY, own * PENALTY)
        return logits

    instead(patch, Pipeline, "decode_step", decode_step)


@mistake("THD-37", "Short rows see the padding of long ones", "read", "pages of different lengths, read as one batch")
def padding_seen(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """In a batch each row's step attends to as many positions as the longest row has."""
    instead(patch, attention, "_visible", lambda right, q, k, lengths: right(q, k, None))


@mistake("THD-38", "Special tokens stand between blanks", "postprocess")
def spaced_out(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """spaces_between_special_tokens is left on, which joins special tokens and the text between them by blanks."""
    marks = re.compile(r"(<\|/?\w+\|>)")
    spaced: Any = lambda right, own, ids: " ".join(part for part in marks.split(right(own, ids)) if part)  # noqa: E731
    instead(patch, Tokenizer, "decode", spaced)


@mistake("THD-39", "Figures are cut out of the page with its boxes", "postprocess", FIGURES)
def figures_with_boxes(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Boxes are drawn on the page itself before the figures are cut out, so that lines and names are in them."""

    def pictures(right: Any, page: Any, spans: Any, *rest: Any) -> Any:
        spoilt = right(drawing.draw_boxes(page, spans), spans, *rest[:-1], [])
        return {**spoilt, artifacts.OVERLAY: right(page, spans, *rest)[artifacts.OVERLAY]}

    instead(patch, artifacts, "_pictures", pictures)


@mistake("THD-40", "Boxes are placed on the padded page", "postprocess", TALL)
def on_padded_page(patch: pytest.MonkeyPatch, subject: SessionSubject) -> None:
    """Coordinates are taken for those of the square view, padding included, and the padding is subtracted."""

    def to_pixels(right: Any, box: Box, width: int, height: int) -> PixelBox:
        side = max(width, height)
        x, y = (side - width) // 2, (side - height) // 2
        x1, y1, x2, y2 = right(box, side, side)
        return PixelBox(x1 - x, y1 - y, x2 - x, y2 - y)

    instead(patch, drawing, "to_pixels", to_pixels)
