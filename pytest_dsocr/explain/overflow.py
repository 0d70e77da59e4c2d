"""The first operation of a page that leaves the range of float16, and the value that it reaches.

An overflow need not leave an infinity behind: the square of a large value is infinite, and a division by it gives 0. So
every operation is watched, and not only the tensors that a block hands on.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from pytest_dsocr.models import STAGES
from pytest_dsocr.models.spec import FUSION, PREFILL
from pytest_dsocr.records.config import Level
from pytest_dsocr.records.subject_result import HALF
from pytest_dsocr.subjects.checked import CheckedSubject

LARGEST = torch.finfo(torch.float16).max
ENDS = f"{HALF} ends at {LARGEST:.0f}"
DECODER = "the decoder"


class Overflow(NamedTuple):
    """An operation with finite operands and a result that float16 does not hold."""

    stage: str
    """Name of its stage; empty if its module is unknown."""
    place: str
    """Module in words, such as ``SAM's block 3``."""
    operation: str
    """Torch's name of the operation."""
    reaches: float
    """Largest value of the same operation in float32; infinite if float32 could not compute it."""

    def __str__(self) -> str:
        reached = f"{self.reaches:.1e}" if LARGEST < self.reaches < math.inf else "a value that is not finite"
        return f"{self.place} reaches {reached} in {self.operation!r}; {ENDS}"


@dataclass(frozen=True)
class WatchedPage:
    """Vision, prompt and steps of one page, with every operation of them watched."""

    overflow: Overflow | None
    """The first one; None if every value is in range, or if the operations cannot be seen."""
    reaches: Mapping[str, float]
    """Largest value in float16 by place, without masks of the least number."""
    seams: Mapping[str, Tensor]
    """Outputs of the stages."""


class OverflowWatch(TorchDispatchMode):
    """Watches torch's operations in this thread while its context is open.

    Args:
        running: paths of the modules that run, the innermost last.
    """

    def __init__(self, running: Sequence[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._running = running
        self.found: Overflow | None = None
        self.reaches: dict[str, float] = {}

    def __enter__(self) -> Self:
        """Start watching."""
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and look at its values in float16."""
        given = (args, kwargs or {})
        before = tree_map(_copied, given) if self.found is None and func._schema.is_mutable else given
        result = func(*given[0], **given[1])
        if self.found is None and not _makes_no_values(func):
            self._look(func, before, largest_of(filter(_is_half, tree_leaves(result))))
        return result

    def _look(self, func: Any, given: Any, largest: float) -> None:
        stage, place = place_of(self._running[-1] if self._running else "")
        if largest < LARGEST:
            self.reaches[place] = max(largest, self.reaches.get(place, 0.0))
        elif largest > LARGEST and not any(map(_is_mask, tree_leaves(given))):
            operation = func.name().partition("::")[2].partition(".")[0]
            self.found = Overflow(stage, place, operation, _in_float32(func, given))


def place_of(path: str) -> tuple[str, str]:
    """Return the stage of a module and its place in words, by the vendor's path of the module."""
    for stage in STAGES:
        if stage.blocks and path.startswith(f"{stage.blocks}."):
            block = path.removeprefix(f"{stage.blocks}.").partition(".")[0]
            return stage.name, f"{stage.title or DECODER}'s {'layer' if stage.name == PREFILL else 'block'} {block}"
        if stage.module and f"{path}.".startswith(f"{stage.module}."):
            part = path.removeprefix(stage.module).strip(".").partition(".")[0]
            return stage.name, f"{stage.title}'s {part}" if part else stage.title
    return (PREFILL, f"{DECODER}'s {path.rpartition('.')[2]}") if path else ("", "an operation outside of all modules")


def watched_page(
    asked: CheckedSubject, inputs: Mapping[str, Tensor], names: nn.Module, tokens: Sequence[int] = ()
) -> WatchedPage:
    """Run a page through vision, prompt and steps.

    Operations of other processes, and of kernels that torch does not call, are not seen.

    Args:
        asked: a subject of stages.
        inputs: its own inputs of the page.
        names: a model with the vendor's names of modules.
        tokens: fed one by one after the prompt.
    """
    running: list[str] = []
    with ExitStack() as hooks, torch.no_grad():
        for name, module in _modules(asked, names) if asked.level >= Level.MODULES else ():
            hooks.enter_context(module.register_forward_pre_hook(lambda *_, name=name: running.append(name)))
            hooks.enter_context(module.register_forward_hook(lambda *_: running.pop() and None))
        watch = hooks.enter_context(OverflowWatch(running))
        seams = asked.vision(inputs, partial=True)
        state, logits = asked.prefill(inputs, seams.get(FUSION))
        for token in tokens:
            asked.step(state, token)
    return WatchedPage(watch.found, watch.reaches, {**seams, PREFILL: logits})


def largest_of(tensors: Iterator[Tensor]) -> float:
    """Return the largest absolute value; infinite if one is NaN."""
    largest = max((float(one.abs().max()) for one in tensors if one.numel()), key=_nan_last, default=0.0)
    return math.inf if math.isnan(largest) else largest


def _nan_last(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _modules(asked: CheckedSubject, names: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the modules that a subject has under the vendor's names, without those of other processes."""
    for name, _ in names.named_modules():
        with suppress(AttributeError):
            module = asked.subject.module(name) if name else None
            if isinstance(module, nn.Module):
                yield name, module


def _in_float32(func: Any, given: Any) -> float:
    args, kwargs = tree_map(_widened, given)
    try:
        found = tree_leaves(func(*args, **kwargs))
    except (RuntimeError, NotImplementedError):  # a kernel for fewer bits alone
        return math.inf
    return largest_of(one for one in found if isinstance(one, Tensor) and one.is_floating_point())


def _makes_no_values(func: Any) -> bool:
    """Return whether an operation returns memory without values yet, or a view of older values."""
    returned = [one.alias_info for one in func._schema.returns]
    return "empty" in func.name() or any(alias is not None and not alias.is_write for alias in returned)


def _is_half(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype is torch.float16


def _is_mask(value: Any) -> bool:
    """Return whether an operand forbids places: by the least number of its dtype, or by minus infinity."""
    if isinstance(value, float):
        return not math.isfinite(value)
    is_floating = isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 0
    return is_floating and not float(value.abs().max()) < torch.finfo(value.dtype).max


def _copied(value: Any) -> Any:
    return value.clone() if _is_half(value) else value


def _widened(value: Any) -> Any:
    if _is_half(value):
        return value.float()
    return torch.float32 if value is torch.float16 else value
