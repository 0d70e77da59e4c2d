"""Subjects on one session, each with one fault that the suite of the cache is there to see, and right ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine import attention
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.subjects.session import SessionSubject
from tests.perf.planted import VisionInDecode

Show = Callable[[Tensor], Tensor]
Make = Callable[[Engine[Any]], SessionSubject]
CAPACITY = 4096
VISIBLE = attention._visible


class ShownCache:
    """A session's cache, shown otherwise than it is."""

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


class ShownState:
    def __init__(self, state: Any, cache: ShownCache) -> None:
        self.state, self.cache = state, cache

    @property
    def logits(self) -> Tensor:
        logits: Tensor = self.state.logits
        return logits


class Shows(SessionSubject):
    """Computes rightly, and shows another cache."""

    def __init__(self, session: Engine[Any], show: Show, layers: int | None = None) -> None:
        super().__init__(session)
        self.show, self.layers = show, layers

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        state = super().prefill(inputs, vision_fusion)
        return ShownState(state, ShownCache(state.cache, self.show, self.layers))

    def step(self, state: Any, token: int) -> Tensor:
        return super().step(state.state, token)


class LooksAgain(SessionSubject):
    """Its steps see the page that prefill was given."""

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        self.page = inputs["images_ori"]
        return super().prefill(inputs, vision_fusion)

    def step(self, state: Any, token: int) -> Tensor:
        return super().step(state, token) + self.page.float().mean()


class Elsewhere(SessionSubject):
    """Names modules that are not those that it runs."""

    def module(self, name: str) -> nn.Module:
        return nn.Identity()


class Ungated(SessionSubject):
    """Has features of a prompt without an image."""

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return super().vision(inputs) or {"vision_fusion": torch.zeros(1, 1)}


class SixCrops(SessionSubject):
    """Has room for the features of six crops."""

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        seams = super().vision(inputs)
        if "sam.crops" in seams:
            seams["sam.crops"] = seams["sam.crops"].clone()
            seams["sam.crops"][6:] = 0.0
        return seams


class SkipsBlankPages(SessionSubject):
    """Does not look at a page of one colour."""

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return super().vision(inputs) if float(inputs["images_ori"].float().std()) else {}


class SumsCrops(SessionSubject):
    """Takes crops that sum to zero for none."""

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        grid = inputs["images_spatial_crop"]
        return super().vision({**inputs, "images_spatial_crop": grid if inputs["images_crop"].sum() else grid * 0 + 1})


class SeesTheLast(SessionSubject):
    """Returns the features of a prompt's last image alone, as the session once did."""

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        visions = self.session.pipeline.vision(Inputs(**inputs))
        return {name: tensor for vision in visions for name, tensor in vision.seams.items()}


class Forgets(SessionSubject):
    """Holds nothing of a prompt of one token."""

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        state = super().prefill(inputs, vision_fusion)
        if inputs["input_ids"].shape[1] == 1:
            state.cache.drop_last()
        return state


class Remembers(Shows):
    """Keeps the last page's cache in front of the next one's, and its text in front of the next."""

    def __init__(self, session: Engine[Any]) -> None:
        super().__init__(session, self.with_the_last)
        self.last, self.text = 0, ""

    def with_the_last(self, tensor: Tensor) -> Tensor:
        return torch.cat([tensor[:, :, : self.last], tensor], dim=2)

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> Any:
        self.last += 1
        return super().prefill(inputs, vision_fusion)

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        self.text += super().read(page, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)
        return self.text


class ReadsAlike(SessionSubject):
    """Reads nothing of any page."""

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        return ""


class Exchanges(SessionSubject):
    """Returns the texts of a batch in the order of their files."""

    def read_many(self, pages: Sequence[Path], *, prompt: str, preset: Preset, max_new_tokens: int) -> list[str]:
        return super().read_many(sorted(pages), prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)


class Unmasked(SessionSubject):
    """Shows the shorter pages of a batch the padding behind them."""

    def read_many(self, pages: Sequence[Path], *, prompt: str, preset: Preset, max_new_tokens: int) -> list[str]:
        with mock.patch.object(attention, "_visible", lambda q, k, lengths: VISIBLE(q, k, None)):
            return super().read_many(pages, prompt=prompt, preset=preset, max_new_tokens=max_new_tokens)


class Louder(SessionSubject):
    """Its steps' logits are a percent too large."""

    def step(self, state: Any, token: int) -> Tensor:
        return super().step(state, token) * 1.01


def fixed(tensor: Tensor) -> Tensor:
    """Numbers of the right shape, the same whatever was computed."""
    shape = (*tensor.shape[:2], CAPACITY, tensor.shape[3])
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))[:, :, : tensor.shape[2]]


def padded(tensor: Tensor) -> Tensor:
    """All the room that there is."""
    return torch.cat([tensor, tensor.new_zeros(*tensor.shape[:2], -tensor.shape[2] % CAPACITY, tensor.shape[3])], 2)


SHOWN: Mapping[str, Show] = {
    "twice as wide": Tensor.double,
    "zeros": torch.zeros_like,
    "the same for any page": fixed,
    "all its room": padded,
    "a ring": lambda tensor: tensor.roll(1, dims=2),
    "no position": lambda tensor: tensor[:, :, :0],
}
FAULTS: Mapping[str, Make] = {
    **{name: lambda session, show=show: Shows(session, show) for name, show in SHOWN.items()},  # type: ignore[misc]
    "one layer": lambda session: Shows(session, Tensor.clone, 1),
    "looks at the page again": LooksAgain,
    "runs vision again": VisionInDecode,
    "names other modules": Elsewhere,
    "has no gate": Ungated,
    "room for six crops": SixCrops,
    "skips blank pages": SkipsBlankPages,
    "takes crops for none by their sum": SumsCrops,
    "sees the last image": SeesTheLast,
    "forgets one token": Forgets,
    "remembers the last page": Remembers,
    "reads nothing": ReadsAlike,
    "exchanges the pages of a batch": Exchanges,
    "shows a batch its padding": Unmasked,
    "louder in steps": Louder,
}
