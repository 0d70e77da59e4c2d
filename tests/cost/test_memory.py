"""Activations stay below the bound and use much of it, and the cache takes the computed bytes."""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from pytest_dsocr.cost.model import activation_peaks, cache_bytes
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.explain.mistake import model_of
from pytest_dsocr.subjects.kv_probe import KvProbe
from tests.cost.full_size import work_of

USED = 0.25
"""Least used share of the bound: SAM's bias, which a kernel may copy, is half of it."""


class Live(TorchDispatchMode):
    """Follows storages from the operator that made them to their end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now_bytes = self.peak_bytes = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._known.update(one.untyped_storage() for one in tree_iter((args, kwargs)) if isinstance(one, torch.Tensor))
        out = func(*args, **(kwargs or {}))
        for one in tree_iter(out):
            if isinstance(one, torch.Tensor) and one.untyped_storage() not in self._known:
                self._begin(one.untyped_storage())
        return out

    def _begin(self, storage: Any) -> None:
        self._known.add(storage)
        self._grow(storage.nbytes())
        weakref.finalize(storage, self._grow, -storage.nbytes())

    def _grow(self, by: int) -> None:
        self.now_bytes += by
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)


@pytest.mark.dsocr_slow
@pytest.mark.parametrize(
    ("attention", "page_px", "preset"), [("eager", (640, 1280), "gundam"), ("sdpa", (600, 600), "tiny")]
)
def test_peaks_on_the_cpu(attention: str, page_px: tuple[int, int], preset: str) -> None:
    engine = Engine.from_checkpoint("synthetic:tiny", attention=attention)
    inputs = engine.prepare(Image.new("RGB", page_px, "white"), prompt="free", preset=preset)
    pipeline = engine.pipeline
    found = dict.fromkeys(("sam", "clip", "prefill", "decode"), 0)

    def live(stage: str, run: Callable[[], Any]) -> Any:
        with torch.no_grad(), Live() as within:
            out = run()
        found[stage] = max(found[stage], within.peak_bytes)
        return out

    for pixels in [inputs.images_ori, *([inputs.images_crop] if inputs.images_spatial_crop.prod() > 1 else [])]:
        of_sam = live("sam", partial(pipeline.encode, "sam", pixels))
        live("clip", partial(pipeline.encode, "clip", of_sam))
    seen = pipeline.vision(inputs)[0].vision_fusion
    state = live("prefill", lambda: pipeline.prefill_with(inputs, seen))
    room = {
        one.untyped_storage()
        for at in range(state.cache.layers)
        for one in (state.cache.keys(at), state.cache.values(at))
    }
    found["prefill"] -= sum(one.nbytes() for one in room)
    live("decode", lambda: engine.decode_step(state, 5))
    work = work_of(engine, page_px, preset, 2, dtype="float32", attention=attention)
    arch, probe = model_of(engine).arch, KvProbe(state)
    assert cache_bytes(arch, work) == probe.bytes_per_token * state.cache.length
    bound = activation_peaks(arch, work)
    used = {stage: peak / bound[stage] for stage, peak in found.items()}
    on_gpu = used.pop("decode")  # where the weights of its experts are copied together
    assert on_gpu <= 1
    assert all(USED <= share <= 1 for share in used.values()), used
