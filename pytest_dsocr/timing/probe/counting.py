"""Quantities that noise does not touch: tokens, operators, waits, bytes, lines of Python; on a GPU kernels as well."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from statistics import mean
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.timing.counts import PARTS
from pytest_dsocr.timing.limits import TOKENS
from pytest_dsocr.timing.probe.flops import counted_flops
from pytest_dsocr.timing.probe.lines import Lines, Marks, Own, stage_of
from pytest_dsocr.timing.probe.stopwatch import WITHIN, Stopwatch, growth
from pytest_dsocr.timing.probe.tracing import ProfileReading, profiled
from pytest_dsocr.timing.probe.walk import FIRST_LAYER, MODULES, module_of
from pytest_dsocr.timing.rounds import ENCODERS, FEW
from pytest_dsocr.timing.traced import READS

if TYPE_CHECKING:
    from pytest_dsocr.timing.probe.page import PageProbe

COPIES = frozenset(("_to_copy", "copy_"))
CONVOLUTION = "convolution"
TIMES = 2
"""Number of times that a page is profiled; the mean counts."""
FEW_STEPS = 4
"""Decode steps that are profiled; the last one counts."""
TRANSFERS = ("Memcpy HtoD", "Memcpy DtoH")
"""Copies between host and GPU, which take as long as the host does."""


def count(probe: PageProbe, parts: Collection[str] = PARTS) -> dict[str, int]:
    """Count one page of ``probe``: its whole reading, and its stages if the subject has them."""
    found = _of_reading(probe) if "page" in parts else {}
    if probe.has_stages and "stages" in parts:
        found |= _of_stages(probe)
    if "lines" in parts:
        found |= _of_lines(probe)
    if probe.has_stages and "device" in parts:
        found |= _of_gpu(probe) if probe.device.startswith("cuda") else _of_products(probe)
    return found


def _of_lines(probe: PageProbe) -> dict[str, int]:
    """Return how the lines of each token grow; the fewest tokens that show it are enough, since tracing is slow."""
    if (first_layer := module_of(probe.subject, FIRST_LAYER)) is None:
        return {}
    grown = growth_by_token(lambda: probe.read(min(probe.max_new_tokens, TOKENS)), first_layer)
    return {} if grown is None else {"page.lines.growth": grown}


def _of_reading(probe: PageProbe) -> dict[str, int]:
    with _views(probe.subject) as views, Counting() as counting:
        text = probe.read()
    found = {"page.characters": len(text), "page.operators": counting.operators, "page.waits": counting.waits}
    if views is not None:
        found["page.views"] = sum(views)
    return found


def _of_stages(probe: PageProbe) -> dict[str, int]:
    walk = probe.walk(Stopwatch("cpu"))
    with _views(probe.subject) as once, Counting() as at_prefill:
        inputs, state = walk.begin()
    steps: list[Counting] = []

    def counted() -> Counting:
        steps.append(Counting())
        return steps[-1]

    with _views(probe.subject) as views:
        walk.decode(state, counted)
    with Counting() as first:
        probe.read(1)
    mask = inputs.get("images_seq_mask")
    found = {
        "tokens.output": len(walk.tokens),
        "tokens.prompt": int(inputs["input_ids"].shape[-1]),
        **({} if mask is None else {"tokens.image": int(mask.sum())}),
        "first_token.operators": at_prefill.operators,
        "first_token.waits": at_prefill.waits,
        "page.waits.first": first.waits,
        **_of_steps(steps),
        **({} if once is None or views is None else {"vision.views": sum(once), "decode.views": sum(views)}),
    }
    if (bytes_of_token := _cache_bytes(state)) is not None:
        found["cache.bytes_a_token"] = bytes_of_token
    return found


def _of_products(probe: PageProbe) -> dict[str, int]:
    """Return the FLOPs of the prompt and of a step; empty if the figure of an operator is unknown."""
    walk = probe.walk(Stopwatch("cpu"), (PREFILL,))
    with counted_flops() as prompt:
        _, state = walk.begin()
    with counted_flops() as step:
        probe.subject.step(state, walk.tokens[-1])
    is_known = step.algorithmic and not (prompt.unknown or step.unknown)
    return {"prefill.flops": prompt.algorithmic, "step.flops": step.algorithmic} if is_known else {}


def _of_steps(steps: list[Counting]) -> dict[str, int]:
    """Return the counts of the last step, and how much they grow a token; the first may prepare, and is left out."""
    if len(steps) < 3:
        return {}
    last, alike = steps[-1], steps[1:]
    return {
        "decode.operators": last.operators,
        "decode.operators.growth": growth([one.operators for one in alike]),
        "decode.waits": last.waits,
        "decode.convolutions": last.convolutions,
        "decode.bytes": last.new_bytes,
        "decode.bytes.growth": growth([one.new_bytes for one in alike]),
    }


def _cache_bytes(state: Any) -> int | None:
    """Return the cache's bytes for each position, if the state exposes it."""
    cache = getattr(state, "cache", None)
    try:
        tensors = [side(layer) for layer in range(cache.layers) for side in (cache.keys, cache.values)]  # type: ignore[union-attr]
        total: int = sum(one.numel() * one.element_size() // one.shape[-2] for one in tensors)
        return total
    except (AttributeError, TypeError, ZeroDivisionError, NotImplementedError):
        return None


@contextmanager
def _views(subject: Any) -> Iterator[list[int] | None]:
    """Note how many views each call of the first encoder takes; None if the subject does not expose it as a module."""
    module = module_of(subject, next(iter(MODULES.values())))
    if module is None:
        yield None
        return
    views: list[int] = []
    hook = module.register_forward_pre_hook(lambda _, args: views.append(len(args[0])))
    try:
        yield views
    finally:
        hook.remove()


class Counting(TorchDispatchMode):
    """Counts the operators called within, on any device; what a CUDA graph or another library runs is not seen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators = 0
        self.waits = 0
        """Operators that make the host wait: a number or a shape read from a tensor, a copy from a GPU to the host."""
        self.new_bytes = 0
        """Bytes of results that are newly allocated, not stored in an argument."""
        self.convolutions = 0
        """Number of convolutions: a decoder has none, an image encoder starts with one."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # torch would import its compiler to keep it away from us, which takes 4 s

    def __enter__(self) -> Self:
        if "torch._dynamo" in sys.modules:
            _pass_over()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = args, kwargs or {}
        out = func(*args, **given[1])
        name = func.overloadpacket.__name__
        self.operators += 1
        self.waits += name in READS or (name in COPIES and _leaves_gpu(name, args, out))
        self.convolutions += name == CONVOLUTION
        self.new_bytes += _new_bytes(given, out)
        return out


@cache
def _pass_over() -> None:
    """Have torch's compiler, once something has imported it, pass over our counting."""
    Counting.__torch_dispatch__ = torch.compiler.disable(Counting.__torch_dispatch__)  # type: ignore[method-assign]


def _leaves_gpu(name: str, args: Any, out: Any) -> bool:
    source = args[1] if name == "copy_" else args[0]
    return bool(source.device.type != "cpu" and out.device.type == "cpu")


def _new_bytes(given: Any, out: Any) -> int:
    old = {one.untyped_storage()._cdata for one in _tensors(given)}
    new = {storage._cdata: storage.nbytes() for one in _tensors(out) if (storage := one.untyped_storage())}
    return sum(size for data, size in new.items() if data not in old)


def _tensors(values: Any) -> Iterator[Tensor]:
    return (one for one in tree_iter(values) if isinstance(one, torch.Tensor) and one.layout == torch.strided)


def growth_by_token(read: Callable[[], object], first_layer: Any) -> int | None:
    """Return how many lines more each token runs than the one before; None if there are too few tokens.

    A debugger or coverage tool does not see the reading.

    Args:
        read: reads the page.
        first_layer: the decoder's first module, which is called once for each token.
    """
    ran, marks, before = 0, list[int](), sys.gettrace()

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal ran
        ran += event == "line"
        return trace

    hook = first_layer.register_forward_pre_hook(lambda *_: marks.append(ran))
    sys.settrace(trace)
    try:
        read()
    finally:
        sys.settrace(before)
        hook.remove()
    a_token = [late - early for early, late in pairwise(marks)][1:]  # the first holds the prompt
    if len(a_token) < 2 * FEW:
        return None
    return growth(a_token)


def _of_gpu(probe: PageProbe) -> dict[str, int]:
    """Return ``STAGE.kernels`` and ``STAGE.busy_us`` of the work on the GPU, and the page's memory.

    The time of GPU work hardly differs between runs, whereas the host's launches differ by a tenth; so it is a count.
    """
    gpu = torch.device(probe.device)
    torch.cuda.reset_peak_memory_stats(gpu)
    probe.read()
    found = {"page.peak_bytes": torch.cuda.max_memory_allocated(gpu)}
    profiles = [kernels_by_stage(_reading(probe)) for _ in range(TIMES)]
    for stage in profiles[-1]:
        found[f"{stage}.kernels"] = len(profiles[-1][stage])
        found[f"{stage}.busy_us"] = round(mean(sum(one.get(stage, ())) for one in profiles))
    return found | {"decode.allocations": _allocations_of_step(probe, gpu)}


def _reading(probe: PageProbe) -> ProfileReading:
    lines = Lines(Marks(Own([], ())))

    def read() -> None:
        walk = probe.walk(lines.marks)
        walk.max_new_tokens = min(walk.max_new_tokens, FEW_STEPS + 1)
        _, state = walk.begin()
        walk.decode(state)

    return ProfileReading(profiled(read, probe.device), lines)


def kernels_by_stage(reading: ProfileReading) -> dict[str, list[float]]:
    """Return the microseconds of each kernel that a stage launched; of decode the last step's."""
    found: dict[str, list[float]] = defaultdict(list)
    for run, name, us in reading.kernels:
        is_counted = stage_of(run) != "decode" or run == f"decode {reading.runs['decode'] - 1}"
        found[stage_of(run)] += us if is_counted and not name.startswith(TRANSFERS) else []
    for whole, part in WITHIN.items():
        found[whole] += found[part]
    if any(found[name] for name in ENCODERS):
        found["vision_fusion"] = found.pop("vision", [])
    return {name: of_stage for name, of_stage in found.items() if of_stage}


def _allocations_of_step(probe: PageProbe, gpu: torch.device) -> int:
    walk = probe.walk(Stopwatch("cpu"))
    _, state = walk.begin()
    walk.decode(state)
    before = _allocations(gpu)
    probe.subject.step(state, walk.tokens[-1])
    torch.cuda.synchronize(gpu)
    return _allocations(gpu) - before


def _allocations(gpu: torch.device) -> int:
    found: Mapping[str, Any] = torch.cuda.memory_stats(gpu)
    return int(found["allocation.all.allocated"])
