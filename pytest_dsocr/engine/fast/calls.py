"""A function of one tensor as CUDA graphs, one for each shape that comes more than once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Body = Callable[[Tensor], Tensor]


class CapturedCalls:
    """The function itself at the first call with a shape, and on a CPU; a graph from the second on.

    Args:
        body: the function; it may launch on the device, must not wait for it, and reads memory that does not move.
        pool: what the graphs share their memory in with others that never run at the same time.
    """

    def __init__(self, body: Body, pool: Any = None) -> None:
        self._body, self._pool = body, pool
        self._graphs: dict[object, _Graph | None] = {}

    def __call__(self, x: Tensor) -> Tensor:
        """Run it; what it gives is the caller's own."""
        if not x.is_cuda:
            return self._body(x)
        shape = (x.shape, x.dtype, x.device)
        if shape not in self._graphs:
            self._graphs[shape] = None
            return self._body(x)
        graph = self._graphs[shape] = self._graphs[shape] or _Graph(self._body, x, self._pool)
        return graph(x)


class _Graph:
    def __init__(self, body: Body, x: Tensor, pool: Any) -> None:
        self._x, self._graph = x.clone(), torch.cuda.CUDAGraph()
        with (
            torch.cuda.device(x.device),
            torch.cuda.graph(self._graph, pool=pool, capture_error_mode="thread_local"),  # other threads may go on
        ):
            self._out = body(self._x)

    def __call__(self, x: Tensor) -> Tensor:
        with torch.cuda.device(x.device):
            self._x.copy_(x)
            self._graph.replay()
            return self._out.clone()
