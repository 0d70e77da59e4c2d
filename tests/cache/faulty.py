"""Subjects on one engine, each with one fault that the suite of the cache is there to see."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.layers import attention
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.subjects.engine import EngineSubject
from tests.timing.planted import VisionInDecode

Show = Callable[[Tensor], Tensor]
Make = Callable[[Engine[Any]], EngineSubject]
CAPACITY = 4096
VISIBLE = attention._visible


def changed(**methods: Callable[..., Any]) -> Make:
    """Make an engine with other methods; each is given the right one and its arguments."""

    def make(engine: Engine[Any]) -> EngineSubject:
        subject = EngineSubject(engine)
        for name, change in methods.items():
            setattr(subject, name, partial(change, getattr(subject, name)))
        return subject

    return make


class ShownCache:
    """An engine's cache, shown otherwise than it is."""

    def __init__(self, cache: Any, show: Show, layers: int | None) -> None:
        self._cache, self._show = cache, show
        self.layers = cache.layers if layers is None else layers

    @property
    def length(self) -> int:
        return int(self._cache.length)

    def keys(self, layer: int) -> Tensor:
        return self._show(self._cache.keys(layer))

    def values(self, layer: int) -> Tensor:
        return self._show(self._cache.values(layer))


def shown(state: Any, show: Show, layers: int | None = None) -> Any:
    return SimpleNamespace(state=state, cache=ShownCache(state.cache, show, layers), logits=state.logits)


def shows(show: Show, layers: int | None = None) -> Make:
    """Return a subject that computes correctly but shows another cache."""
    return changed(
        prefill=lambda prefill, *given: shown(prefill(*given), show, layers),
        step=lambda step, state, token: step(state.state, token),
    )


def fixed(tensor: Tensor) -> Tensor:
    """Return the same random numbers for every tensor of a shape."""
    shape = (*tensor.shape[:2], CAPACITY, tensor.shape[3])
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))[:, :, : tensor.shape[2]]


def padded(tensor: Tensor) -> Tensor:
    """Pad a tensor with zeros to the allocated length."""
    return torch.cat([tensor, tensor.new_zeros(*tensor.shape[:2], -tensor.shape[2] % CAPACITY, tensor.shape[3])], 2)


class LooksAgain(EngineSubject):
    """A subject with decode steps that depend on the page again."""

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        self.page = inputs["images_ori"]
        return super().prefill(inputs, vision_fusion)

    def step(self, state: Any, token: int) -> Tensor:
        return super().step(state, token) + self.page.float().mean()


class Remembers(EngineSubject):
    """A subject that prepends the last page's cache and text to those of the next page."""

    last, text = 0, ""

    def with_the_last(self, tensor: Tensor) -> Tensor:
        return torch.cat([tensor[:, :, : self.last], tensor], dim=2)

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        self.last += 1
        return shown(super().prefill(inputs, vision_fusion), self.with_the_last)

    def step(self, state: Any, token: int) -> Tensor:
        return super().step(state.state, token)

    def read(self, *page: Any, **how: Any) -> str:
        self.text += super().read(*page, **how)
        return self.text


def six_crops(vision: Callable[..., Any], inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Run vision, but keep the features of six crops only."""
    seams = dict(vision(inputs))
    if "sam.crops" in seams:
        seams["sam.crops"] = seams["sam.crops"].clone()
        seams["sam.crops"][6:] = 0.0
    return seams


def by_their_sum(vision: Callable[..., Any], inputs: Mapping[str, Tensor]) -> Any:
    """Run vision without crops if their pixels sum to zero."""
    grid = inputs["images_spatial_crop"]
    return vision({**inputs, "images_spatial_crop": grid if inputs["images_crop"].sum() else grid * 0 + 1})


def the_last(vision: Any, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """Return only the features of a prompt's last image, as the engine once did."""
    visions = vision.__self__.engine.pipeline.vision(Inputs(**inputs))
    return {name: tensor for vision in visions for name, tensor in vision.seams.items()}


def forgets(prefill: Callable[..., Any], inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
    """Run the prefill, but drop the cache of a prompt of one token."""
    state = prefill(inputs, vision_fusion)
    if inputs["input_ids"].shape[1] == 1:
        state.cache.drop_last()
    return state


def but_the_first(step: Callable[..., Tensor], *given: Any) -> Tensor:
    """Run a step that does not attend to the first token."""
    append = KVCache.append
    with mock.patch.object(KVCache, "append", lambda *of: tuple(part[:, :, 1:] for part in append(*of))):
        return step(*given)


def hoards(step: Callable[..., Tensor], *given: Any) -> Tensor:
    """Run a step and leak 4 MB."""
    vars(step.__self__).setdefault("held", []).append(torch.ones(1 << 20))  # type: ignore[attr-defined]
    return step(*given)


def hoards_arrays(step: Callable[..., Tensor], *given: Any) -> Tensor:
    """Run a step and leak 4 MB outside of torch at every second step."""
    held = vars(step.__self__).setdefault("held", [])  # type: ignore[attr-defined]
    held.append(np.ones(1 << 19 if len(held) % 2 else 0))
    return step(*given)


def with_gradients(read: Callable[..., str], *page: Any, **how: Any) -> str:
    """Read a page with gradients enabled, as for training."""
    model = read.__self__.engine.model.requires_grad_(True)  # type: ignore[attr-defined]
    try:
        with mock.patch.object(torch, "no_grad", nullcontext):
            return read(*page, **how)
    finally:
        model.requires_grad_(False)


def unmasked(read_many: Callable[..., list[str]], *pages: Any, **how: Any) -> list[str]:
    """Read a batch without masking the padding of its shorter pages."""
    with mock.patch.object(attention, "_visible", lambda q, k, lengths: VISIBLE(q, k, None)):
        return read_many(*pages, **how)


class SeesTheFirst(EngineSubject):
    """A subject that sees the first page of its process instead of each later one."""

    seen: Image.Image | None = None

    def read(self, page: Path, **how: Any) -> str:
        self.seen = self.seen or load_image(page)
        with TemporaryDirectory() as folder:
            self.seen.save(first := Path(folder) / "first.png")
            return super().read(first, **how)


READS_NOTHING: Mapping[str, Make] = {"reads nothing": changed(read=lambda *_, **how: "")}
REMEMBERS: Mapping[str, Make] = {"remembers the last page": Remembers}
IS_LOUDER: Mapping[str, Make] = {"louder in steps": changed(step=lambda step, *given: step(*given) * 1.01)}
FAULTS: Mapping[str, Mapping[str, Make]] = {
    "test_a_token_takes_the_computed_bytes": {
        "twice as wide": shows(Tensor.double),
        "one layer": shows(Tensor.clone, 1),
    },
    "test_earlier_positions_stay_as_they_are": {
        "a ring": shows(lambda tensor: tensor.roll(1, dims=2)),
        "no position": shows(lambda tensor: tensor[:, :, :0]),
    },
    "test_a_step_sees_what_is_kept": {"does not see the first token": changed(step=but_the_first)},
    "test_another_token_is_another_content": {"the same for any page": shows(fixed)},
    "test_steps_do_not_change_with_the_pixels": {"looks at the page again": LooksAgain},
    "test_vision_is_not_called_in_a_step": {
        "runs vision again": VisionInDecode,
        "names other modules": changed(module=lambda *_: nn.Identity()),
    },
    "test_it_grows_by_one_in_every_layer_a_step": {"all its room": shows(padded)},
    "test_vision_gives_nothing": {
        "has no gate": changed(vision=lambda vision, inputs: vision(inputs) or {"vision_fusion": torch.zeros(1, 1)})
    },
    "test_it_is_the_beginning_of_a_longer_one": {"forgets one token": changed(prefill=forgets)},
    "test_the_first_page_reads_the_same_again": {**REMEMBERS, **READS_NOTHING, "sees the first page": SeesTheFirst},
    "test_a_prefill_begins_with_an_empty_cache": REMEMBERS,
    "test_each_page_reads_as_alone": {
        "exchanges the pages of a batch": changed(
            read_many=lambda read_many, pages, **how: read_many(sorted(pages), **how)
        ),
        **READS_NOTHING,
    },
    "test_pages_of_unlike_lengths_read_as_alone": {"shows a batch its padding": changed(read_many=unmasked)},
    "test_read_says_what_its_own_steps_choose": READS_NOTHING,
    "test_another_prompt_of_a_page_is_another_reading": READS_NOTHING,
    "test_a_page_without_text_is_not_made_to_have_some": READS_NOTHING,
    "test_a_crop_among_nine_is_seen_as_among_two": {"room for six crops": changed(vision=six_crops)},
    "test_a_blank_page_is_looked_at": {
        "skips blank pages": changed(
            vision=lambda vision, inputs: vision(inputs) if float(inputs["images_ori"].float().std()) else {}
        )
    },
    "test_crops_that_sum_to_zero_are_seen": {"takes crops for none by their sum": changed(vision=by_their_sum)},
    "test_images_of_one_prompt_are_seen_as_each_by_itself": {"sees the last image": changed(vision=the_last)},
    "test_a_step_holds_no_more_than_its_keys_and_values": {
        "hoards 4 MB a step": changed(step=hoards),
        "hoards arrays": changed(step=hoards_arrays),
    },
    "test_reading_keeps_nothing_for_a_backward_pass": {"leaves gradients on": changed(read=with_gradients)},
    "test_step_by_step_is_one_call": IS_LOUDER,
    "test_going_on_from_a_cache_is_one_call": IS_LOUDER,
    "test_the_cache_holds_the_same_by_either_way": {"zeros": shows(torch.zeros_like)},
}
"""Faults that each test of the suite is there to see, by the test's name."""
