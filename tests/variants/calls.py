"""Calls of the same modules more often, in another order, or for more rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.markup import clean_output
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine, until_end
from pytest_dsocr.engine.pipeline import DecodeState, pick
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.models.spec import FUSION
from pytest_dsocr.pages.page_list import shipped
from pytest_dsocr.records.config import Setup
from tests.subjects.calling import InChunks, PageFirst
from tests.variants.changed import Variant, copied, with_pipeline

CHUNK = 100
"""Tokens of the prompt that one call takes."""
ROWS = 4


def copy(setup: Setup) -> Variant:
    """Compute as the engine does, in a class that is not the engine's."""
    return copied(setup)


def fast(setup: Setup) -> Variant:
    """Compute as the fast engine does, in a class that is not the engine's."""
    return Variant(Engine.from_checkpoint(setup.checkpoint, device=setup.device, dtype=setup.dtype, engine="fast"))


def views_by_twos(setup: Setup) -> Variant:
    """Encode the crops two at a time."""
    return with_pipeline(copied(setup), ByTwos)


def views_one_by_one(setup: Setup) -> Variant:
    """Encode every view alone."""
    return with_pipeline(copied(setup), OneByOne)


def page_first(setup: Setup) -> Variant:
    """Encode the page before its crops."""
    return with_pipeline(copied(setup), PageBeforeCrops)


def chunked_prefill(setup: Setup) -> Variant:
    """Run the prompt through the decoder in several calls."""
    subject = copied(setup)
    model: Any = subject.engine.model
    decode = model.decode

    def in_chunks(embeds: Tensor, cache: KVCache, *, all_logits: bool = False) -> Tensor:
        parts = [decode(part, cache, all_logits=all_logits) for part in embeds.split(CHUNK, dim=1)]
        return torch.cat(parts, dim=1) if all_logits else parts[-1]

    model.decode = in_chunks
    return subject


def row_of_four(setup: Setup) -> Variant:
    """Decode every page as one row of a batch of four."""
    return RowOfFour(copied(setup).engine)


class ByTwos(InChunks):
    """Calls the encoders for two views at a time."""

    views = 2


class OneByOne(InChunks):
    """Calls the encoders for each view."""

    views = 1


class PageBeforeCrops(PageFirst):
    """Calls the encoders for the page before its crops, for all crops together, and the decoder for the prompt."""

    views = InChunks.views
    chunks = ()


@dataclass
class FirstRow:
    """The first row of a batch, as the state of one page."""

    batch: DecodeState[KVCache]

    @property
    def logits(self) -> Tensor:
        """Logits of the row's next token, ``[1, V]``."""
        return self.batch.logits[:1]

    @property
    def cache(self) -> FirstRow:
        """The row's cache, which is this object too."""
        return self

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.batch.cache.layers

    @property
    def length(self) -> int:
        """Number of the row's positions."""
        return self.batch.cache.lengths[0]

    def keys(self, layer: int) -> Tensor:
        """Return a layer's keys, ``[1, G, S, D]``."""
        return self.batch.cache.keys(layer)[:1, :, : self.length]

    def values(self, layer: int) -> Tensor:
        """Return a layer's values, ``[1, G, S, D]``."""
        return self.batch.cache.values(layer)[:1, :, : self.length]


class RowOfFour(Variant):
    """Decodes a page together with three other pages of other lengths."""

    def __init__(self, engine: Engine[Any]) -> None:
        super().__init__(engine)
        preset, pages = engine.family.quickest, zip(shipped("dev-3"), cycle(engine.family.prompts), strict=False)
        self._others = [engine.prefill(engine.prepare(page, prompt=prompt, preset=preset)) for page, prompt in pages]

    def prefill(self, inputs: Any, vision_fusion: Tensor | None) -> Any:
        """Run the prompt, and join the page with the others."""
        own = self.engine.pipeline.prefill_with(Inputs(**inputs), vision_fusion)
        return FirstRow(self.engine.pipeline.join([own, *self._others]))

    def step(self, state: Any, token: int) -> Tensor:
        """Feed one token, and to each other page its own best token."""
        others = state.batch.logits[1:].argmax(dim=-1).tolist()
        return self.engine.decode_step(state.batch, [token, *others])[0]

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read one page, as the first of four."""
        engine, inputs = self.engine, self.inputs(page, prompt=prompt, preset=preset)
        ids = inputs["input_ids"][0].tolist()
        policy = replace(self.policy, max_new_tokens=max_new_tokens)
        state, ban, tokens = self.prefill(inputs, self.vision(inputs).get(FUSION)), policy.ban(ids), list[int]()
        for _ in range(policy.room(len(ids))):
            if tokens:
                self.step(state, tokens[-1])
            tokens += pick(state.logits, [ban.banned()])
            if tokens[-1] == policy.eos_id:
                break
            ban.push(tokens[-1])
        return clean_output(engine.tokenizer.decode(until_end(tokens, policy.eos_id)))

    def read_many(self, pages: Sequence[Path], *, prompt: str, preset: Preset, max_new_tokens: int) -> list[str]:
        """Read four pages at a time; where there are fewer, the first fill the batch."""
        texts = list[str]()
        for at in range(0, len(pages), ROWS):
            four = [*pages[at : at + ROWS], *pages[:ROWS]][:ROWS]
            texts += super().read_many(four, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)
        return texts[: len(pages)]
