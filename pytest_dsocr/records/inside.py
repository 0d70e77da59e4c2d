"""Inputs and outputs of the modules inside a block, or outside a stage's blocks, in one call."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pytest_dsocr.base.exact_types import exact_tensor
from pytest_dsocr.models import STAGES
from pytest_dsocr.records.block_seams import FindModule, blocks_at
from pytest_dsocr.records.names import TensorName

MOST_BYTES = 512 << 20
"""Bytes of the tensors of one call above which none are kept."""


class InnerCall(NamedTuple):
    """A call of a module inside, with the numbers of its input and of its output among the kept tensors."""

    path: str
    given: int
    gave: int


class Inside(NamedTuple):
    """Tensors of one call of a block, for its first view; tensor 0 is the block's input, and 1 its output."""

    tensors: tuple[Tensor, ...] = ()
    calls: tuple[InnerCall, ...] = ()

    @property
    def given(self) -> Tensor:
        """Input of the block."""
        return self.tensors[0]

    @property
    def gave(self) -> Tensor:
        """Output of the block."""
        return self.tensors[1]


class _Recorder:
    """Calls inside of a module, from its own call until it, or the module that ends the recording, is done."""

    def __init__(self) -> None:
        self.done: list[Inside] = []
        self._views = self._bytes = 0
        self._tensors: list[Tensor] = []
        self._keys: list[tuple[Any, ...]] = []
        self._calls: list[InnerCall] = []

    def begin(self, _module: nn.Module, args: Any, kwargs: Any) -> None:
        """Start a recording with the input of the outer module."""
        if (given := _first(args, kwargs)) is not None and given.ndim:
            self._views, self._bytes = len(given), 0
            self._tensors, self._keys, self._calls = [], [], []
            self._kept(given)
            self._tensors.append(self._tensors[0])  # the output takes this place
            self._keys.append(())

    def keep(self, path: str, _module: nn.Module, args: Any, kwargs: Any, out: Any) -> None:
        """Keep a call of a module inside."""
        given, gave = _first(args, kwargs), _first(out)
        if self._views and given is not None and gave is not None and not _is_captured(gave):
            self._calls.append(InnerCall(path, self._kept(given), self._kept(gave)))

    def end(self, out: Any) -> None:
        """End a recording with the output."""
        if self._views and (gave := _first(out)) is not None:
            self._tensors[1] = self._tensors[self._kept(gave)]
            if self._bytes <= MOST_BYTES:
                self.done.append(Inside(tuple(self._tensors), tuple(self._calls)))
        self._views, self._tensors, self._calls = 0, [], []

    def _kept(self, tensor: Tensor) -> int:
        """Return the number of a tensor among the kept ones, as a copy of its first view."""
        own = exact_tensor(tensor).detach()
        own = own[: len(own) // self._views] if own.ndim and len(own) % self._views == 0 else own
        key = own.data_ptr(), tuple(own.shape), own.stride()
        for number in range(len(self._keys) - 1, -1, -1):
            if self._keys[number] == key and self._tensors[number].equal(own.cpu()):
                return number
        self._bytes += own.nbytes
        self._tensors.append(own.cpu().clone() if self._bytes <= MOST_BYTES else own.new_empty(0))
        self._keys.append(key)
        return len(self._tensors) - 1


@contextmanager
def watch_inside(module: object, first: object = None, last: object = None) -> Iterator[list[Inside]]:
    """Record the calls inside a module of this process while the context is open.

    Args:
        module: a block, or the module of a stage.
        first: first block of the stage. If it is given, its input ends a recording.
        last: last block of the stage. If it is given, its output starts a recording.
    """
    recorder = _Recorder()
    with ExitStack() as hooks:
        if isinstance(module, nn.Module) and isinstance(first, nn.Module | None):
            if isinstance(last, nn.Module):
                begins: Any = lambda _module, _args, out: recorder.begin(last, out, {})  # noqa: E731
                hooks.enter_context(last.register_forward_hook(begins))
            else:
                hooks.enter_context(module.register_forward_pre_hook(recorder.begin, with_kwargs=True, prepend=True))
            for path, one in module.named_modules():
                if path and one is not last:
                    hooks.enter_context(one.register_forward_hook(partial(recorder.keep, path), with_kwargs=True))
            if first is None:
                hooks.enter_context(module.register_forward_hook(lambda _module, _args, out: recorder.end(out)))
            else:
                ends: Any = lambda _module, args, kwargs: recorder.end(_first(args, kwargs))  # noqa: E731
                hooks.enter_context(first.register_forward_pre_hook(ends, with_kwargs=True))
        yield recorder.done


def watch_front(find: FindModule, name: TensorName) -> AbstractContextManager[list[Inside]]:
    """Record the modules before a stage's first block, if ``name`` is that block."""
    stage = next(one for one in STAGES if one.name == name.stage)
    if name.block == 0 and stage.module:
        with suppress(AttributeError):
            return watch_inside(find(stage.module), find(f"{stage.blocks}.0"))
    return watch_inside(None)


def watch_back(find: FindModule, name: TensorName) -> AbstractContextManager[list[Inside]]:
    """Record the modules after a stage's last block, or all of a stage without blocks."""
    stage = next((one for one in STAGES if one.name == name.stage), None)
    if stage is not None and stage.module:
        with suppress(AttributeError):
            blocks = [*blocks_at(find, stage.blocks)] if stage.blocks else []
            return watch_inside(find(stage.module), last=blocks[-1] if blocks else None)
    return watch_inside(None)


def _is_captured(tensor: Tensor) -> bool:
    """Return whether a graph is being made, in which no values can be read."""
    return torch.compiler.is_compiling() or (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def _first(given: Any, named: Mapping[str, Any] | None = None) -> Tensor | None:
    """Return the first tensor of real numbers among the arguments or the results of a module."""
    every = (*(given if isinstance(given, tuple | list) else (given,)), *(named or {}).values())
    return next((one for one in every if isinstance(one, Tensor) and one.is_floating_point()), None)
