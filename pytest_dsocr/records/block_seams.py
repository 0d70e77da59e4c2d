"""Outputs of blocks and layers: seams inside the encoder's stages and the decoder, by the vendor's names of modules.

``STAGE.page/3`` is the output of block 3 of a stage for the whole page, and ``STAGE.crops/3`` for the crops.
``prefill/3`` is the output of the decoder's layer 3 for the prompt. They show which block broke; ``STAGE.page`` shows
only that one did.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.exact_types import exact_tensor
from pytest_dsocr.models import SEAMS, STAGES
from pytest_dsocr.models.spec import PREFILL
from pytest_dsocr.records.names import TensorName
from pytest_dsocr.records.reference_result import Seam
from pytest_dsocr.records.summing import Summing

BlockName = tuple[str, int]
"""A stage, and the depth of one of its blocks."""


class SingleViews:
    """Passes of one view each, through the blocks of SAM and CLIP.

    All crops have one shape, and there are at least two; the page has another shape. If all passes have the same shape,
    the first is the page, and later ones are ignored.
    """

    def __init__(self) -> None:
        self._passes: dict[BlockName, dict[tuple[int, ...], list[Tensor]]] = {}

    def keep(self, block: BlockName, module: str, out: Tensor) -> None:
        """Keep a copy of a pass of one view, ``[1, ...]``.

        Raises:
            DsocrError: if the passes so far cannot be those of crops and a page.
        """
        groups = self._passes.setdefault(block, {})
        groups.setdefault(tuple(out.shape), []).append(out.clone())
        if len(groups) > 2 or (len(groups) == 2 and min(map(len, groups.values())) > 1):
            message = " and ".join(f"{len(passes)} times {list(shape)}" for shape, passes in groups.items())
            raise DsocrError(
                f"{module} gave {message}, so {block[0]} cannot be compared; have it run once on all crops or on each, "
                "once on the page and once on the prompt, or do not offer modules"
            )

    def views(self) -> Iterator[tuple[BlockName, str, Tensor]]:
        """Yield each block's ``crops`` ``[P, ...]``, if there are any, and its ``page`` ``[1, ...]``."""
        for block, groups in self._passes.items():
            first, *others = groups.values()
            page, *crops = sorted((first, *others), key=len) if others else (first,)
            yield block, "page", page[0]
            if crops and len(crops[0]) > 1:
                yield block, "crops", torch.cat(crops[0])


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

MOST_WAITING_BYTES = 256 << 20
"""Bytes of outputs on their way to the host; the blocks of a page of nine full-size crops have 440 MB in bf16."""
HASHING = min(8, os.cpu_count() or 1)
"""Threads that hash at the same time; a thread hashes 1.4 GB a second."""

FindModule = Callable[[str], nn.Module]
"""See :meth:`pytest_dsocr.subjects.protocol.OpenSubject.module`."""


class DeepSeams:
    """Outputs of the blocks, each reduced to a seam at once; tensors are kept only for views encoded one by one.

    Outputs are ``[B, H, W, C]`` for SAM, with the windows joined again, and ``[B, 1 + h * w, C]`` for CLIP, with the
    class token. The decoder's are ``[1, S, C]``, before the last norm.
    """

    def __init__(self) -> None:
        self._seams: dict[str, Seam] = {}
        self._single = SingleViews()
        self._on_their_way: dict[str, Summing] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._waiting_bytes = 0

    @property
    def seams(self) -> dict[str, Seam]:
        """Seams by name, in the order of the stages; waits for a GPU."""
        for (stage, depth), view, out in self._single.views():
            if (name := str(TensorName(stage, view, depth))) not in self._shapes:
                self._sum_up(name, out)
        self._fetch()
        return in_stage_order(self._seams)

    def keep(self, stage: str, depth: int, module: str, out: Tensor) -> None:
        """Summarise the output of block ``depth`` for the first pass over the page, the crops or the prompt.

        A pass of one token is a decode step, which is ignored.

        Raises:
            DsocrError: if a pass has another shape than the one before it, so that neither is the vendor's, or if
            single views are not those of crops and a page.
        """
        if out.shape[1] == 1:
            return
        if stage != PREFILL and len(out) == 1 and str(TensorName(stage, "crops", depth)) not in self._shapes:
            self._single.keep((stage, depth), module, exact_tensor(out))
            return
        name = _block_name(stage, depth, out)
        if name not in self._shapes:
            self._shapes[name] = tuple(out.shape)
            self._sum_up(name, exact_tensor(out))
        elif (before := self._shapes[name]) != tuple(out.shape):
            raise DsocrError(
                f"{module} gave {list(before)} and then {list(out.shape)}, so {name} cannot be compared; have it "
                "run once on all crops, once on the page and once on the prompt, or do not offer modules"
            )

    def _sum_up(self, name: str, out: Tensor) -> None:
        if not out.is_cuda:
            self._seams[name] = Seam.of(out)
            return
        self._on_their_way[name] = Summing.of(out.detach().contiguous())
        self._waiting_bytes += out.nbytes
        if self._waiting_bytes > MOST_WAITING_BYTES:
            self._fetch()

    def _fetch(self) -> None:
        """Hash the seams of a GPU, whose bytes wait in the host's memory."""
        with ThreadPoolExecutor(HASHING) as threads:
            made = threads.map(Seam.fetched, self._on_their_way.values())
            self._seams.update(zip(self._on_their_way, made, strict=True))
        self._on_their_way.clear()
        self._waiting_bytes = 0


@contextmanager
def watch_deep(module: FindModule) -> Iterator[DeepSeams]:
    """Watch the blocks of SAM, CLIP and the decoder through forward hooks while the context is open.

    Args:
        module: returns the module of the vendor's name, or raises ``AttributeError`` if there is none.
    """
    deep = DeepSeams()
    with _hooked(module, lambda stage, depth, name, _args, out: deep.keep(stage, depth, name, out)):
        yield deep


@contextmanager
def watch_passes(module: FindModule, only: BlockName | None = None) -> Iterator[list[BlockPass]]:
    """Copy the input and output of every block, or of one, while the context is open, except in decode steps."""
    passes: list[BlockPass] = []

    def keep(stage: str, depth: int, _name: str, args: Any, out: Tensor) -> None:
        if (
            only in (None, (stage, depth)) and args and args[0].shape[1] > 1
        ):  # inputs of a module in another process stay there
            given, gave = (exact_tensor(one).detach().clone() for one in (args[0], out))
            passes.append(BlockPass(stage, depth, _block_name(stage, depth, gave), given, gave))

    with _hooked(module, keep):
        yield passes


@contextmanager
def _hooked(module: FindModule, keep: Callable[[str, int, str, Any, Tensor], None]) -> Iterator[None]:
    """Hand ``keep`` the stage, depth, module's name, arguments and output of every block while the context is open."""

    def hook(stage: str, depth: int, name: str, _module: nn.Module, args: Any, out: Any) -> None:
        keep(stage, depth, name, args, out if isinstance(out, Tensor) else out[0])

    with ExitStack() as hooks:
        for stage, path in BLOCKS.items():
            for depth, block in enumerate(_blocks(module, path)):
                hooks.enter_context(block.register_forward_hook(partial(hook, stage, depth, f"{path}.{depth}")))
        yield


def in_stage_order(seams: Mapping[str, Seam]) -> dict[str, Seam]:
    """Sort seams in the order of computation: a stage's blocks, then its output; unknown names come last."""
    return dict(sorted(seams.items(), key=lambda item: _place(TensorName.parse(item[0]))))


def _place(name: TensorName) -> tuple[int, float]:
    whole = str(name.whole)
    return SEAMS.index(whole) if whole in SEAMS else len(SEAMS), inf if name.block is None else name.block


def _block_name(stage: str, depth: int, out: Tensor) -> str:
    """Name the output of a block by its number of views: a page is one, and crops are at least two."""
    view = "" if stage == PREFILL else "crops" if len(out) > 1 else "page"
    return str(TensorName(stage, view, depth))


def _blocks(module: FindModule, path: str) -> Iterator[nn.Module]:
    for depth in count():
        try:
            block = module(f"{path}.{depth}")
        except AttributeError:
            return
        yield block
