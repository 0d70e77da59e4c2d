"""A step over a slot, captured as one CUDA graph: a single launch a token."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pytest_dsocr.engine.fast.calls import Graph
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
        self._device, self._x, self._body = x_BC.device, x_BC.clone(), body
        self._warm()
        self._graph = Graph(lambda: self._moved_on(slot), self._device)

    def __call__(self, x_BC: Tensor) -> Tensor:
        """Run it; the logits ``[B, V]`` are the caller's own."""
        with torch.cuda.device(self._device):
            self._x.copy_(x_BC)
            return self._graph.replay().clone()

    def _moved_on(self, slot: Slot) -> Tensor:
        logits = self._body(self._x)
        slot.positions.add_(1)
        return logits

    def _warm(self) -> None:
        """Compile kernels and let libraries allocate, on another stream; what is written is written again later."""
        with torch.cuda.device(self._device):
            beside, here = torch.cuda.Stream(), torch.cuda.current_stream()
            beside.wait_stream(here)
            with torch.cuda.stream(beside):
                self._body(self._x)
            here.wait_stream(beside)
