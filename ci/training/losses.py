"""What training asks: the answer, coordinates near the right ones, words of vision tokens, blocks of the whole view."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ci.training.batch import Asked
from ci.training.lexicon import LABELS
from ci.training.network import Heads, Seen
from pytest_dsocr.contract.markup import UNITS
from pytest_dsocr.engine.model import DeepseekOCR

COORDINATE_SPREAD = 1.0
"""Standard deviation of the target over a coordinate's neighbours, in units of 1/999 of the page."""
FOLLOWING_WEIGHT = 0.5
EMPTY_WEIGHT = 0.3
LAYOUT_WEIGHT = 0.5
RECT_WEIGHT = 5.0
EDGE_WEIGHT = 10.0
BALANCE_WEIGHT = 0.02


@dataclass(frozen=True)
class AnswerLosses:
    """What the decoder said, each a scalar on the device."""

    text: Tensor
    coordinates: Tensor
    imbalance: Tensor
    text_right: Tensor
    """Share of the tokens that are no coordinates."""
    coordinate_error: Tensor
    """Mean distance in units of 1/999 of the page."""

    def total(self) -> Tensor:
        """Weigh and add them."""
        return self.text + self.coordinates + BALANCE_WEIGHT * self.imbalance


@dataclass(frozen=True)
class VisionLosses:
    """What the vision tokens said, each a scalar on the device."""

    words: Tensor
    following: Tensor
    empty: Tensor
    layout: Tensor
    rects: Tensor
    edges: Tensor
    words_right: Tensor

    def total(self, word_weight: float) -> Tensor:
        """Weigh and add them."""
        of_words = self.words + FOLLOWING_WEIGHT * self.following + EMPTY_WEIGHT * self.empty
        of_blocks = self.layout + RECT_WEIGHT * self.rects + EDGE_WEIGHT * self.edges
        return word_weight * of_words + LAYOUT_WEIGHT * of_blocks


@dataclass(frozen=True)
class Ids:
    """The tokens that the losses treat apart."""

    numbers: Tensor
    """Those of 0 to 999, ``[1000]``."""
    empty: int
    """What a vision token says that has no word."""


def answer_losses(model: DeepseekOCR, seen: Seen, asked: Asked, ids: Ids) -> AnswerLosses:
    """Hold what the decoder said against the answers."""
    hidden = seen.hidden.flatten(0, 1)
    texts = model.lm_head(hidden[asked.asked_text])
    numbers = model.lm_head(hidden[asked.asked_number]).log_softmax(dim=-1)[:, ids.numbers]
    return AnswerLosses(
        text=_mean_nll(texts, asked.text),
        coordinates=-(near(asked.number) * numbers).sum() / max(len(asked.number), 1),
        imbalance=seen.imbalance,
        text_right=_share(texts.argmax(dim=-1) == asked.text),
        coordinate_error=(numbers.argmax(dim=-1) - asked.number).abs().sum() / max(len(asked.number), 1),
    )


def vision_losses(model: DeepseekOCR, heads: Heads, seen: Seen, asked: Asked, ids: Ids) -> VisionLosses:
    """Hold what the vision tokens say by themselves against the page: words as the language model would say them."""
    vision = seen.vision.flatten(0, 1)
    spoken = (vision[asked.word_at], heads.following(vision[asked.following_at]), vision[asked.empty_at])
    words, following, empty = (model.lm_head(model.model.norm(tokens)) for tokens in spoken)
    layout, rects, edges = _layout(heads, seen, asked)
    return VisionLosses(
        words=_mean_nll(words, asked.word),
        following=_mean_nll(following, asked.following),
        empty=_mean_nll(empty, torch.full_like(asked.empty_at, ids.empty)),
        layout=layout,
        rects=rects,
        edges=edges,
        words_right=_share(words.argmax(dim=-1) == asked.word),
    )


def near(values: Tensor) -> Tensor:
    """Give a target over the 1000 coordinates for each of ``values``: most on it, the rest beside it."""
    distance = torch.arange(UNITS + 1, device=values.device) - values[:, None]
    weights = torch.exp(-0.5 * (distance / COORDINATE_SPREAD) ** 2)
    return weights / weights.sum(dim=1, keepdim=True)


def _layout(heads: Heads, seen: Seen, asked: Asked) -> tuple[Tensor, Tensor, Tensor]:
    """The whole view's tokens say which block reaches into their cell."""
    first = asked.first_page_token
    found = heads.layout(seen.vision[:, first : first + asked.labels.shape[1]]).float()
    labels, rects, edges = found.split([1 + len(LABELS), 4, 4], dim=-1)
    in_block = (asked.labels > 0)[..., None]
    values = 4 * in_block.sum() + 1
    return (
        F.cross_entropy(labels.flatten(0, 1), asked.labels.flatten()),
        ((rects.sigmoid() - asked.rects).abs() * in_block).sum() / values,
        ((edges - asked.edges).abs() * in_block).sum() / values,
    )


def _mean_nll(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits, targets, reduction="sum") / max(len(targets), 1)


def _share(right: Tensor) -> Tensor:
    return right.sum() / max(len(right), 1)
