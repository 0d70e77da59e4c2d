"""The model's stages in order, each separately callable, watched and run under the vendor's precision; greedy decoding.

Shapes: B rows, S prompt tokens, C hidden channels, V vocabulary, N images, P crops.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Generic

import torch
from torch import Tensor

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.policy import DecodePolicy
from pytest_dsocr.contract.presets import Grid, crop_count
from pytest_dsocr.engine.fusion import fuse, scatter
from pytest_dsocr.engine.protocol import CacheT, OcrModel
from pytest_dsocr.engine.stages import Stages
from pytest_dsocr.models.spec import DECODE, FUSION, PIXELS, PREFILL, VIEWS


class View(dict[str, Tensor]):
    """The output of each stage for the crops, or for the page; ``view.projector`` is ``view["projector"]``."""

    def __getattr__(self, stage: str) -> Tensor:
        try:
            return self[stage]
        except KeyError:
            raise AttributeError(f"the model has no stage {stage!r}; it has {', '.join(self)}") from None


@dataclass(frozen=True)
class Vision:
    """Seams of one image's vision; ``vision_fusion`` is the part that goes into the prompt, ``[tokens, C]``."""

    crops: View | None
    page: View
    vision_fusion: Tensor

    @property
    def seams(self) -> dict[str, Tensor]:
        """Every seam by its name: ``STAGE.crops`` if there are crops, ``STAGE.page``, and ``vision_fusion``."""
        views = {name: view for name, view in zip(VIEWS, (self.crops, self.page), strict=True) if view is not None}
        of_views = {f"{stage}.{name}": view[stage] for stage in self.page for name, view in views.items()}
        return {**of_views, FUSION: self.vision_fusion}

    @property
    def views(self) -> int:
        """Views that went through the encoders: the crops and the page."""
        return sum(len(next(iter(view.values()))) for view in (self.crops, self.page) if view)


@dataclass
class DecodeState(Generic[CacheT]):
    """State of decoding: the cache, and the logits of its last position."""

    cache: CacheT
    logits: Tensor
    """Float32 logits of the next token, ``[B, V]``."""
    last_embeds: Tensor
    """Embedding of the last prompt token, ``[B, 1, C]``."""
    visions: list[Vision]
    all_logits: Tensor | None = None
    """Logits after each prompt token ``[B, S, V]``, if requested."""
    steps: int = 0
    """Decode steps done."""


class Pipeline(Generic[CacheT]):
    """A model's stages.

    Args:
        model: the engine's model, or the vendor's in its adapter.
        stages: the instrument of the stages.
        autocast: run under CUDA autocast to bf16, as the vendor's ``infer`` does.
    """

    def __init__(self, model: OcrModel[CacheT], stages: Stages, *, autocast: bool) -> None:
        self.model = model
        self.stages = stages
        self.autocast = autocast

    def encode(self, stage: str, *given: Tensor) -> Tensor:
        """Run one of the stages of every view on its inputs; pixels may be of any float dtype."""
        takes = self.model.family.stage[stage].takes
        own = [one.to(self.model.dtype) if name == PIXELS else one for name, one in zip(takes, given, strict=True)]
        with self.running(stage):
            return getattr(self.model, stage)(*own)

    def view(self, pixels: Tensor) -> View:
        """Run those stages in their order on views ``[P, 3, side, side]``."""
        view = View()
        for stage in self.model.family.of_views:
            given = (pixels if name == PIXELS else view[name] for name in stage.takes)
            view[stage.name] = self.encode(stage.name, *given)
        return view

    def vision_fusion(self, crops: Tensor | None, page: Tensor, grid: Grid) -> Tensor:
        """Arrange the last stage's output for the crops ``[P, q * q, C]`` and the page ``[1, h * w, C]``."""
        layout = self.model.family.layout
        newline = self.model.newline if layout.newlines else None
        with self.running(FUSION):
            return fuse(crops, page[0], grid if layout.mosaic else None, newline, self.model.separator)

    def vision(self, inputs: Inputs) -> list[Vision]:
        """Run vision on every image; return an empty list if the vendor's gate is shut."""
        if not inputs.has_vision:
            return []
        crops_left = inputs.images_crop
        visions = []
        for page, (columns, rows) in zip(inputs.images_ori, inputs.images_spatial_crop.tolist(), strict=True):
            count = crop_count((columns, rows))
            crops, crops_left = crops_left[:count], crops_left[count:]
            visions.append(self._one_image(crops, page[None], (columns, rows)))
        return without_surplus(visions, inputs.image_tokens) if self.model.family.drops_surplus(inputs) else visions

    def prefill(self, inputs: Inputs, *, all_logits: bool = False) -> DecodeState[CacheT]:
        """Run the prompt through vision, fusion and decoder, filling a new cache.

        Args:
            inputs: result of ``prepare_inputs``, on the model's device.
            all_logits: keep the logits of every prompt position, for teacher forcing.
        """
        visions = self.vision(inputs)
        features = torch.cat([vision.vision_fusion for vision in visions]) if visions else None
        state = self.prefill_with(inputs, features, all_logits=all_logits)
        state.visions = visions
        return state

    def prefill_with(self, inputs: Inputs, features: Tensor | None, *, all_logits: bool = False) -> DecodeState[CacheT]:
        """Run the prompt through the decoder, with these features ``[tokens, C]`` at its image tokens."""
        with self.running(FUSION):
            embeds = self.model.embed(inputs.input_ids)
            if features is not None:
                embeds = scatter(embeds, inputs.images_seq_mask, features, inputs.image_tokens)
        with self.running(PREFILL):
            cache = self.model.new_cache()
            logits = self.model.decode(embeds, cache, all_logits=all_logits)
        return DecodeState(cache, logits[:, -1], embeds[:, -1:], [], logits if all_logits else None)

    def decode_step(self, state: DecodeState[CacheT], tokens: Sequence[int]) -> Tensor:
        """Feed one token to each row; update the state and return its new logits ``[B, V]``. Vision never runs."""
        with self.running(DECODE):
            ids = torch.tensor(tokens, device=self.model.device)[:, None]
            return self._step(state, self.model.embed(ids))

    def redecode_last(self, state: DecodeState[CacheT]) -> Tensor:
        """Decode the last prompt token again, so the first token comes from a decode step."""
        with self.running(DECODE):
            state.cache.drop_last()
            return self._step(state, state.last_embeds)

    def join(self, states: Sequence[DecodeState[CacheT]]) -> DecodeState[CacheT]:
        """Put single pages' states side by side as the rows of one batch."""
        return DecodeState(
            self.model.join_caches([state.cache for state in states]),
            torch.cat([state.logits for state in states]),
            torch.cat([state.last_embeds for state in states]),
            [vision for state in states for vision in state.visions],
        )

    @contextmanager
    def running(self, stage: str) -> Iterator[None]:
        """Open a stage: it runs on the model's GPU, under the vendor's precision, without gradients, and is watched."""
        precision = torch.autocast("cuda", torch.bfloat16) if self.autocast else nullcontext()
        device = self.model.device  # Triton launches on the current GPU, which may be another
        place = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
        with torch.no_grad(), place, precision, self.stages(stage):
            yield

    def _step(self, state: DecodeState[CacheT], embeds: Tensor) -> Tensor:
        state.logits = self.model.decode(embeds, state.cache)[:, -1]
        state.steps += 1
        return state.logits

    def _one_image(self, crops: Tensor, page: Tensor, grid: tuple[int, int]) -> Vision:
        of_crops = self.view(crops) if len(crops) else None
        of_page = self.view(page)
        last = self.model.family.of_views[-1].name
        return Vision(of_crops, of_page, self.vision_fusion(of_crops[last] if of_crops else None, of_page[last], grid))


def without_surplus(visions: Sequence[Vision], image_tokens: int) -> list[Vision]:
    """Drop the features for which the prompt has no place, the last ones, as the vendor's scatter does."""
    kept = []
    for vision in visions:
        kept.append(replace(vision, vision_fusion=vision.vision_fusion[:image_tokens]))
        image_tokens -= len(kept[-1].vision_fusion)
    return kept


def generate(
    pipeline: Pipeline[CacheT],
    state: DecodeState[CacheT],
    prompts: Sequence[Sequence[int]],
    policy: DecodePolicy,
    pad_id: int,
) -> Iterator[list[int]]:
    """Yield one token a row until every row has ended; a row that has ended yields ``pad_id``.

    Args:
        pipeline: the stages that decode.
        state: a prefilled state with as many rows as ``prompts``; it is updated.
        prompts: each row's prompt ids, which the n-gram rule counts too.
        policy: when to stop and what not to repeat.
        pad_id: the input and output of an ended row.
    """
    bans = [policy.ban(prompt) for prompt in prompts]
    rooms = [policy.room(len(prompt)) for prompt in prompts]
    ended = [False] * len(prompts)
    tokens: list[int] = []
    for number in range(1, max(rooms) + 1):
        if tokens:
            pipeline.decode_step(state, tokens)
        best = pick(state.logits, [ban.banned() for ban in bans])
        tokens = [pad_id if end else token for end, token in zip(ended, best, strict=True)]
        yield tokens
        for ban, token in zip(bans, tokens, strict=True):
            ban.push(token)
        ended = [
            end or token == policy.eos_id or number == room
            for end, token, room in zip(ended, tokens, rooms, strict=True)
        ]
        if all(ended):
            return


def pick(logits: Tensor, banned: Sequence[Sequence[int]]) -> list[int]:
    """Return each row's best token of ``[B, V]`` that is not banned; the first of equals."""
    if any(banned):
        logits = logits.clone()
        for row, tokens in enumerate(banned):
            logits[row, list(tokens)] = -torch.inf
    return logits.argmax(dim=-1).tolist()
