"""Outputs of blocks and layers: seams inside the encoder's stages and the decoder, by the vendor's names of modules.

``STAGE.page/3`` is the output of block 3 of a stage for the whole page, and ``STAGE.crops/3`` for the crops.
``prefill/3`` is the output of the decoder's layer 3 for the prompt. They show which block broke; ``STAGE.page`` shows
only that one did.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from math import inf
from typing import Any, NamedTuple, TypeVar

from torch import Tensor, nn

from pytest_dsocr.base.exact_types import exact_tensor
from pytest_dsocr.models import SEAMS, STAGES
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.passes import Pass, Passes, Places
from pytest_dsocr.records.reference_result import Seam
from pytest_dsocr.records.summing import Summing


class BlockPass(NamedTuple):
    """Input and output of one call of a block."""

    stage: str
    depth: int
    name: str
    """Name of the block's seam, such as ``STAGE.page/3``."""
    given: Tensor
    gave: Tensor


BLOCKS: Mapping[str, str] = {stage.name: stage.blocks for stage in STAGES if stage.blocks}
"""Path of each stage's blocks in a vendor's model."""

MOST_WAITING_BYTES = 64 << 20
"""Bytes of outputs on their way to the host; the blocks of a page of nine full-size crops have 440 MB in bf16. Pinned
memory is used again, and new memory costs 1 s for 256 MB."""
HASHING = min(8, os.cpu_count() or 1)
"""Threads that hash at the same time; a thread hashes 1.4 GB a second."""

Part = Tensor | Seam | Summing
"""A pass that waits to be joined, or a summary."""
FindModule = Callable[[str], nn.Module]
"""See :meth:`pytest_dsocr.subjects.protocol.OpenSubject.module`."""


class DeepSeams:
    """Outputs of the blocks, each reduced to a seam as soon as it is whole; a part is kept until it can be joined.

    Outputs are ``[B, H, W, C]`` for SAM, with the windows joined again, and ``[B, 1 + h * w, C]`` for CLIP, with the
    class token. The decoder's are ``[1, S, C]``, before the last norm.

    Args:
        places: the expected tensors; None for the vendor's way to call a block, of which the first calls count.
    """

    def __init__(self, places: Places | None = None) -> None:
        self.passes = Passes[Part](places)
        self.unplaced: dict[str, str] = {}
        """Why a seam cannot be compared, by name; known once :attr:`seams` was asked for."""
        self._on_their_way: list[Pass[Part]] = []
        self._waiting_bytes = 0

    @property
    def seams(self) -> dict[str, Seam]:
        """Seams by name, in the order of the stages; waits for a GPU."""
        found: dict[str, Pass[Part]] = {}
        for _, place, run in self.passes.joined():
            if isinstance(run, str):
                self.unplaced[place.name] = run
            else:
                parts = [one.out for one in run if isinstance(one.out, Tensor)]
                found[place.name] = self._summed(place.joined(parts)) if parts else run[0]
        self._fetch()
        return in_stage_order({name: one.out for name, one in found.items() if isinstance(one.out, Seam)})

    def keep(self, stage: str, depth: int, out: Tensor) -> None:
        """Keep a pass of block ``depth``."""
        block, own = (stage, depth), exact_tensor(out).detach()
        if self.passes.wants(block, shape := tuple(own.shape)):
            is_whole = self.passes.is_whole(block, shape)
            self.passes.keep(block, self._summed(own) if is_whole else Pass(shape, own.clone()))

    def _summed(self, out: Tensor) -> Pass[Part]:
        """Summarise a tensor, on a GPU without waiting."""
        one = Pass[Part](tuple(out.shape), Summing.of(out.detach().contiguous()) if out.is_cuda else Seam.of(out))
        if out.is_cuda:
            self._on_their_way.append(one)
            self._waiting_bytes += out.nbytes
        if self._waiting_bytes > MOST_WAITING_BYTES:
            self._fetch()
        return one

    def _fetch(self) -> None:
        """Hash the seams of a GPU, whose bytes wait in the host's memory."""
        sums = [one.out for one in self._on_their_way if isinstance(one.out, Summing)]
        with ThreadPoolExecutor(HASHING) as threads:
            for one, seam in zip(self._on_their_way, threads.map(Seam.fetched, sums), strict=True):
                one.out = seam
        self._on_their_way.clear()
        self._waiting_bytes = 0


@contextmanager
def watch_deep(module: FindModule, places: Places | None = None) -> Iterator[DeepSeams]:
    """Watch the blocks of SAM, CLIP and the decoder through forward hooks while the context is open.

    Args:
        module: returns the module of the vendor's name, or raises ``AttributeError`` if there is none.
        places: see :class:`DeepSeams`.
    """
    deep = DeepSeams(places)
    with _hooked(module, lambda stage, depth, _args, out: deep.keep(stage, depth, out)):
        yield deep


@contextmanager
def watch_passes(module: FindModule, places: Places | None = None) -> Iterator[list[BlockPass]]:
    """Copy the input and output of every block while the context is open, except in decode steps.

    Passes that make up one tensor are joined, and the list is filled, when the context is left. Without places, the
    first pass over the page, the crops or the prompt counts.
    """
    found: list[BlockPass] = []
    passes = Passes[tuple[Tensor, Tensor]](places)

    def keep(stage: str, depth: int, args: Any, out: Tensor) -> None:
        if args and passes.wants((stage, depth), shape := tuple(out.shape)):
            given, gave = (exact_tensor(one).detach().clone() for one in (args[0], out))
            passes.keep((stage, depth), Pass(shape, (given, gave)))

    with _hooked(module, keep, takes_input=True):
        yield found
    for (stage, depth), place, run in passes.joined():
        if not isinstance(run, str):
            given, gave = (place.joined([one.out[side] for one in run]) for side in (0, 1))
            found.append(BlockPass(stage, depth, place.name, given, gave))


@dataclass(frozen=True)
class BlockHook:
    """Forward hook of a block."""

    stage: str
    depth: int
    keep: Callable[[str, int, Any, Tensor], None]
    takes_input: bool
    """Whether it needs the block's input, which a subject's own process sends only then."""

    def __call__(self, _module: nn.Module | None, args: Any, out: Any) -> None:
        """Hand on the arguments and the output."""
        self.keep(self.stage, self.depth, args, out if isinstance(out, Tensor) else out[0])


@contextmanager
def _hooked(
    module: FindModule, keep: Callable[[str, int, Any, Tensor], None], *, takes_input: bool = False
) -> Iterator[None]:
    """Hand ``keep`` the stage, depth, arguments and output of every block while the context is open."""
    with ExitStack() as hooks:
        for stage, path in BLOCKS.items():
            for depth, block in enumerate(blocks_at(module, path)):
                hooks.enter_context(block.register_forward_hook(BlockHook(stage, depth, keep, takes_input)))
        yield


T = TypeVar("T")


def in_stage_order(seams: Mapping[str, T]) -> dict[str, T]:
    """Sort seams in the order of computation: a stage's blocks, then its output; unknown names come last."""
    return dict(sorted(seams.items(), key=lambda item: _place(TensorName.parse(item[0]))))


def _place(name: TensorName) -> tuple[int, float]:
    whole = str(name.whole)
    return SEAMS.index(whole) if whole in SEAMS else len(SEAMS), inf if name.block is None else name.block


def blocks_at(module: FindModule, path: str) -> Iterator[nn.Module]:
    """Yield the modules of a list of blocks, in order."""
    for depth in count():
        try:
            block = module(f"{path}.{depth}")
        except AttributeError:
            return
        yield block
