"""Memory that a subject keeps: the growth of its cache for each step, and nothing for a backward pass."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_dsocr.compare.verdict import Comparison, Reason, Verdict, as_expected, not_compared
from pytest_dsocr.cost.cost import ITEM_BYTES
from pytest_dsocr.cost.decoder import cache_bytes
from pytest_dsocr.models.spec import ModelSpec
from pytest_dsocr.plugin.check import Check
from pytest_dsocr.records.case import make_case
from pytest_dsocr.records.config import Config

from .walk import Walk

if TYPE_CHECKING:
    from torch import Tensor

SPARE = 16 << 10
"""Bytes of Python objects that a step may keep besides its keys and values."""
TOKENS = 2


@pytest.mark.dsocr_level("L2")
def test_a_step_holds_no_more_than_its_keys_and_values(
    walk: Walk, dsocr_subject: Any, dsocr_config: Config, dsocr_check: Check
) -> None:
    """Compare the mean of a few steps without the largest one, in which a cache may allocate room for later steps."""
    from pytest_dsocr.engine.checkpoint import resolve

    what = "decode/memory held a step"
    if dsocr_config.isolate:
        dsocr_check([not_compared(what, Reason.NOT_OFFERED)])
        return
    state, _ = walk.start()
    walk.steps(state, walk.first[:1])
    with _traced():
        held = [_held_bytes(dsocr_config.device)]
        for token in walk.first[1:]:
            walk.steps(state, [token])
            held.append(_held_bytes(dsocr_config.device))
    *most, _ = sorted(after - before for before, after in pairwise(held))
    size = ITEM_BYTES[str(getattr(dsocr_subject, "dtype", dsocr_config.dtype))]
    allowed = cache_bytes(resolve(dsocr_config.checkpoint).architecture.decoder, 1, size) + SPARE
    found = sum(most) // len(most)
    verdict = Verdict.MATCH if found <= allowed else Verdict.WRONG
    dsocr_check([Comparison(what, verdict, f"{found:,} bytes a step (allowed {allowed:,}, including keys and values)")])


@pytest.mark.dsocr_level("L0")
def test_reading_keeps_nothing_for_a_backward_pass(
    first_page: Path, family: ModelSpec, dsocr_subject: Any, dsocr_check: Check
) -> None:
    """Read a page with gradients enabled, as a user does, and look for saved tensors."""
    import torch

    from pytest_dsocr.subjects.checked import CheckedSubject
    from pytest_dsocr.timing.probe.counting import Counting

    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.nbytes)
        return tensor

    case = make_case(first_page, "markdown", family.quickest, TOKENS, family=family)
    hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with torch.enable_grad(), hooks, Counting() as counting:
        CheckedSubject(dsocr_subject).read(case)
    what, why = "read/kept for a backward pass", "because the vendor's infer runs in torch.no_grad()"
    if counting.operators:
        dsocr_check([as_expected(what, f"{len(kept)} tensors, {sum(kept):,} bytes", "0 tensors, 0 bytes", why)])
    else:
        dsocr_check([not_compared(what, Reason.NOT_OFFERED)])


@contextmanager
def _traced() -> Iterator[None]:
    """Trace Python's allocations, and leave tracing on if it was on before."""
    was_on = tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        yield
    finally:
        if not was_on:
            tracemalloc.stop()


def _held_bytes(device: str) -> int:
    """Return the bytes of tensors, and of everything that Python allocated since tracing started."""
    import torch

    gc.collect()
    plain = (one for one in gc.get_objects() if type(one) in (torch.Tensor, torch.nn.Parameter))
    hosts = (one for one in plain if one.device.type != "cuda" and one.layout == torch.strided and not one.is_nested)
    of_tensors = {storage._cdata: storage.nbytes() for storage in (one.untyped_storage() for one in hosts)}
    on_gpu = torch.cuda.memory_allocated(torch.device(device)) if device.startswith("cuda") else 0
    return int(sum(of_tensors.values())) + int(on_gpu) + tracemalloc.get_traced_memory()[0]
