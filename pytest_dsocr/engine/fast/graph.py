"""A step over a slot, captured as one CUDA graph: a single launch a token."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pytest_dsocr.engine.fast.slots import Slot

Body = Callable[[Tensor], Tensor]


class CapturedStep:
    """A step that reads its input where it was captured, and moves the slot's positions on by one.

    Args:
        body: the step, of embeddings ``[B, C]``; it may launch on the device and must not wait for it.
        x_BC: embeddings like those of every later call.
        slot: what the body writes to.
    """

    def __init__(self, body: Body, x_BC: Tensor, slot: Slot) -> None:
        self._device = x_BC.device
        self._body = body  # whose weights the graph reads
        self._x = x_BC.clone()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self._device):
            self._warm(body)
            with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):  # other threads may go on
                self._logits = body(self._x)
                slot.positions.add_(1)

    def __call__(self, x_BC: Tensor) -> Tensor:
        """Run it; the logits ``[B, V]`` are the caller's own."""
        with torch.cuda.device(self._device):
            self._x.copy_(x_BC)
            self._graph.replay()
            return self._logits.clone()

    def _warm(self, body: Body) -> None:
        """Compile kernels and let libraries allocate, on another stream; what is written is written again later."""
        beside, here = torch.cuda.Stream(), torch.cuda.current_stream()
        beside.wait_stream(here)
        with torch.cuda.stream(beside):
            body(self._x)
        here.wait_stream(beside)
