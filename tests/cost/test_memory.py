"""Activations stay below the bound, and use much of it; on a GPU that is ``test_gpu.py``'s."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from pytest_dsocr.cost.model import activation_peaks
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.protocol import CacheView
from tests.conftest import model_of

WAYS = [
    ("mini", "eager", (640, 1280), "gundam"),
    ("mini", "sdpa", (600, 600), "tiny"),
]
USED = 0.4
"""Of the bound, at least: the bias that a kernel may copy is half of SAM's."""


class Live(TorchDispatchMode):
    """Follows storages from the operator that made them to their end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now_bytes = self.peak_bytes = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for one in tree_iter((args, kwargs or {})):
            if isinstance(one, torch.Tensor):
                self._known.add(one.untyped_storage())  # it was there before
        out = func(*args, **(kwargs or {}))
        for one in tree_iter(out):
            if isinstance(one, torch.Tensor) and one.untyped_storage() not in self._known:
                self._begin(one.untyped_storage())
        return out

    def _begin(self, storage: Any) -> None:
        n_bytes = storage.nbytes()
        self._known.add(storage)
        self.now_bytes += n_bytes
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)
        weakref.finalize(storage, self._end, n_bytes)

    def _end(self, n_bytes: int) -> None:
        self.now_bytes -= n_bytes


@pytest.mark.parametrize(("checkpoint", "attention", "page_px", "preset"), WAYS)
def test_peaks_on_the_cpu(checkpoint: str, attention: str, page_px: tuple[int, int], preset: str) -> None:
    session = Engine.from_checkpoint(checkpoint, attention=attention)
    inputs = session.prepare(Image.new("RGB", page_px, "white"), prompt="free", preset=preset)
    found = dict.fromkeys(("sam", "clip", "prefill"), 0)

    def live(stage: str, run: Callable[[Any], Any], given: Any) -> Any:
        with Live() as within:
            out = run(given)
        found[stage] = max(found[stage], within.peak_bytes)
        return out

    pipeline = session.pipeline
    for pixels in [inputs.images_ori, *([inputs.images_crop] if inputs.images_spatial_crop.prod() > 1 else [])]:
        live("clip", partial(pipeline.encode, "clip"), live("sam", partial(pipeline.encode, "sam"), pixels))
    seen = pipeline.vision(inputs)[0].vision_fusion
    state = live("prefill", lambda features: pipeline.prefill_with(inputs, features), seen)
    found["prefill"] -= sum(one.untyped_storage().nbytes() for one in _of_cache(state.cache))
    work = Workload.of_prompt(
        page_px, "free", preset, session.tokenizer, generated_tokens=1, dtype="float32", attention=attention
    )
    bound = activation_peaks(model_of(session).arch, work)
    used = {stage: peak_bytes / bound[stage] for stage, peak_bytes in found.items()}
    assert all(USED <= share <= 1 for share in used.values()), used


def _of_cache(cache: CacheView) -> list[torch.Tensor]:
    return [side(layer) for layer in range(cache.layers) for side in (cache.keys, cache.values)]
