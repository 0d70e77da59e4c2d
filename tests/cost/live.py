"""How many bytes of tensors live at once, on any device: what is made within, as long as someone holds it."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class Live(TorchDispatchMode):
    """Follows storages from the operator that made them to their end."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now_bytes = self.peak_bytes = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for one in tree_iter((args, kwargs or {})):
            if isinstance(one, torch.Tensor):
                self._known.add(one.untyped_storage())  # it was there before
        out = func(*args, **(kwargs or {}))
        for one in tree_iter(out):
            if isinstance(one, torch.Tensor) and one.untyped_storage() not in self._known:
                self._begin(one.untyped_storage())
        return out

    def _begin(self, storage: Any) -> None:
        n_bytes = storage.nbytes()
        self._known.add(storage)
        self.now_bytes += n_bytes
        self.peak_bytes = max(self.peak_bytes, self.now_bytes)
        weakref.finalize(storage, self._end, n_bytes)

    def _end(self, n_bytes: int) -> None:
        self.now_bytes -= n_bytes
