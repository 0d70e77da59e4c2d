"""Subjects that call the named modules in other ways than the vendor's code does, right and wrong ones."""

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.presets import Grid
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.pipeline import DecodeState, Pipeline, View, Vision
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.models.spec import FUSION, PREFILL
from pytest_dsocr.subjects.engine import EngineSubject, engine_subject
from pytest_dsocr.subjects.protocol import Setup


class InChunks(Pipeline[Any]):
    """Pipeline that encodes at most ``views`` views at once, and runs the prompt in the given ``chunks`` of tokens."""

    views = 1 << 30
    chunks: tuple[int, ...] = ()
    """Numbers of tokens; a negative one counts from the end of the prompt, and the last chunk is the rest."""

    def view(self, pixels: Tensor) -> View:
        parts = [super(InChunks, self).view(part) for part in pixels.split(self.views)]
        return View({name: torch.cat([part[name] for part in parts]) for name in parts[0]})

    def prefill_with(self, inputs: Inputs, features: Tensor | None, *, all_logits: bool = False) -> DecodeState[Any]:
        if not self.chunks:
            return super().prefill_with(inputs, features, all_logits=all_logits)
        with self.running(FUSION):
            embeds = embedded(self, inputs, features)
        places = [place % embeds.shape[1] for place in self.chunks]
        with self.running(PREFILL):
            cache = self.model.new_cache()
            parts = embeds.tensor_split(places, dim=1)
            logits = torch.cat([self.model.decode(part, cache, all_logits=all_logits) for part in parts], dim=1)
        return DecodeState(cache, logits[:, -1], embeds[:, -1:], [], logits if all_logits else None)


def embedded(pipeline: Pipeline[Any], inputs: Inputs, features: Tensor | None) -> Tensor:
    """Return the prompt's embeddings with these features at its image tokens."""
    embeds: Tensor = pipeline.model.embed(inputs.input_ids)
    if features is not None:
        embeds = embeds.masked_scatter(inputs.images_seq_mask[..., None], features.to(embeds.dtype))
    return embeds


class CropsByTwo(InChunks):
    """Encodes two crops at a time, and runs the last token of the prompt in a call of its own."""

    views = 2
    chunks = (-1,)


class PageFirst(InChunks):
    """Encodes each view alone, the page first, and runs the prompt in three calls."""

    views = 1
    chunks: tuple[int, ...] = (100, -1)

    def _one_image(self, crops: Tensor, page: Tensor, grid: Grid) -> Vision:
        of_page = self.view(page)
        of_crops = self.view(crops) if len(crops) else None
        last = self.model.family.of_views[-1].name
        return Vision(of_crops, of_page, self.vision_fusion(of_crops[last] if of_crops else None, of_page[last], grid))


class WarmedUp(InChunks):
    """Encodes blank views first; runs a prompt without features first, and decodes two rows from it."""

    views = 1
    chunks = (100,)

    def _one_image(self, crops: Tensor, page: Tensor, grid: Grid) -> Vision:
        super()._one_image(torch.zeros_like(crops), torch.zeros_like(page), grid)
        return super()._one_image(crops, page, grid)

    def prefill_with(self, inputs: Inputs, features: Tensor | None, *, all_logits: bool = False) -> DecodeState[Any]:
        other = None if features is None else torch.zeros_like(features)
        state = super().prefill_with(inputs, other)
        self.decode_step(self.join([state, state]), [5, 7])
        return super().prefill_with(inputs, features, all_logits=all_logits)


class CropsReversed(Pipeline[Any]):
    """Encodes the crops from the last to the first."""

    def view(self, pixels: Tensor) -> View:
        return View({name: out.flip(0) for name, out in super().view(pixels.flip(0)).items()})


class Padded(Pipeline[Any]):
    """Fills a batch of views with blank ones to a multiple of three, and the prompt to a multiple of 64 tokens."""

    def view(self, pixels: Tensor) -> View:
        blank = pixels.new_zeros(-len(pixels) % 3, *pixels.shape[1:])
        return View({name: out[: len(pixels)] for name, out in super().view(torch.cat([pixels, blank])).items()})

    def prefill_with(self, inputs: Inputs, features: Tensor | None, *, all_logits: bool = False) -> DecodeState[Any]:
        embeds = embedded(self, inputs, features)
        tokens = embeds.shape[1]
        padded = torch.cat([embeds, embeds.new_zeros(1, -tokens % 64, embeds.shape[2])], dim=1)
        with self.running(PREFILL):
            cache = self.model.new_cache()
            logits = self.model.decode(padded, cache, all_logits=True)[:, :tokens]
            cache.seen = cache.prompts = [tokens]
        return DecodeState(cache, logits[:, -1], embeds[:, -1:], [], logits if all_logits else None)


class RestartedPositions(InChunks):
    """Wrong: each chunk of the prompt has the positions of the first one."""

    chunks = (100,)

    def prefill_with(self, inputs: Inputs, features: Tensor | None, *, all_logits: bool = False) -> DecodeState[Any]:
        positions = KVCache.positions
        with mock.patch.object(KVCache, "positions", lambda own, *new: positions(KVCache(1, len(own.seen)), *new)):
            return super().prefill_with(inputs, features, all_logits=all_logits)


class OneCropTwice(Pipeline[Any]):
    """Wrong: encodes each view alone, and always the first one."""

    def view(self, pixels: Tensor) -> View:
        parts = [super(OneCropTwice, self).view(pixels[:1]) for _ in pixels]
        return View({name: torch.cat([part[name] for part in parts]) for name in parts[0]})


class NotPutBack(Pipeline[Any]):
    """Wrong: encodes the crops from the last to the first, and hands them on so."""

    def view(self, pixels: Tensor) -> View:
        return super().view(pixels.flip(0))


class LostToken(Pipeline[Any]):
    """Wrong: leaves out the prompt's second token."""

    def prefill_with(self, inputs: Inputs, features: Tensor | None, *, all_logits: bool = False) -> DecodeState[Any]:
        return self.decoded(embedded(self, inputs, features), [0])

    def decoded(self, embeds: Tensor, first: list[int]) -> DecodeState[Any]:
        """Run the prompt with other tokens at its start."""
        embeds = torch.cat([embeds[:, first], embeds[:, 2:]], dim=1)
        with self.running(PREFILL):
            cache = self.model.new_cache()
            return DecodeState(cache, self.model.decode(embeds, cache)[:, -1], embeds[:, -1:], [])


class ExtraToken(LostToken):
    """Wrong: feeds the prompt's first token twice."""

    def prefill_with(self, inputs: Inputs, features: Tensor | None, *, all_logits: bool = False) -> DecodeState[Any]:
        return self.decoded(embedded(self, inputs, features), [0, 0, 1])


class OwnCalls(EngineSubject):
    """An engine that is not the reference's."""


def called(engine: Engine[Any], kind: type[Pipeline[Any]]) -> EngineSubject:
    """Return an engine's model as a subject that calls its modules in a way of its own."""
    own = Engine(engine.model, engine.tokenizer, policy=engine.policy, instrument="off")
    own.pipeline = kind(own.model, own.stages, autocast=own.pipeline.autocast)
    return OwnCalls(own)


def _factory(kind: type[Pipeline[Any]]) -> Callable[[Setup], EngineSubject]:
    return lambda setup: called(engine_subject(setup).engine, kind)


crops_by_two, page_first, warmed_up, crops_reversed, padded = map(
    _factory, (CropsByTwo, PageFirst, WarmedUp, CropsReversed, Padded)
)
