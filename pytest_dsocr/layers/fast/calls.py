"""Work on the device as CUDA graphs: a function of one tensor, one graph for each shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

GivenT = TypeVar("GivenT")
MOST_GRAPHS = 24
"""Most graphs of one function; each keeps its results in memory, such as a prompt's keys and values."""


class CapturedCalls(Generic[GivenT]):
    """The function itself at the first call with a shape, and on a CPU; a graph from the second on.

    The next call may overwrite its result.

    Args:
        body: the function; it may launch on the device, must not wait for it, and reads memory that does not move.
        pool: what the graphs share their memory in with others that never run at the same time.
    """

    def __init__(self, body: Callable[[Tensor], GivenT], pool: Any = None) -> None:
        self._body, self._pool = body, pool
        self._graphs: dict[object, tuple[Tensor, Graph[GivenT]] | None] = {}

    def __call__(self, x: Tensor) -> GivenT:
        """Run it."""
        if not x.is_cuda:
            return self._body(x)
        shape = (x.shape, x.dtype, x.device, torch.is_autocast_enabled("cuda"))
        if shape not in self._graphs:
            if len(self._graphs) < MOST_GRAPHS:
                self._graphs[shape] = None
            return self._body(x)
        found = self._graphs[shape] = self._graphs[shape] or self._captured(x.clone())
        given, graph = found
        given.copy_(x)
        return graph.replay()

    def _captured(self, given: Tensor) -> tuple[Tensor, Graph[GivenT]]:
        return given, Graph(lambda: self._body(given), given.device, self._pool)


class Graph(Generic[GivenT]):
    """A captured CUDA graph of ``body``. Its libraries must be warm; each replay overwrites its outputs."""

    def __init__(self, body: Callable[[], GivenT], device: torch.device, pool: Any = None) -> None:
        self._device, self._graph = device, torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(device)  # torch's own default is a stream of the first GPU that captured anything
        with (
            torch.cuda.device(device),
            torch.cuda.graph(self._graph, pool, stream, capture_error_mode="thread_local"),  # other threads may go on
        ):
            self._given = body()

    def replay(self) -> GivenT:
        """Launch it again."""
        with torch.cuda.device(self._device):
            self._graph.replay()
        return self._given
