"""What is changed in a loaded session, and put back at the end."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self

from torch import Tensor, nn


class Changes:
    """Changes of attributes and weights, undone in the opposite order when the context ends."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], Any]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            self._undo.pop()()

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Give ``owner``, a module, a class or an object, another attribute."""
        if name in vars(owner) or _is_registered(owner, name):
            self._undo.append(partial(setattr, owner, name, getattr(owner, name)))
        else:
            self._undo.append(partial(delattr, owner, name))
        setattr(owner, name, value)

    def weight(self, parameter: Tensor, value: Tensor, *, own_dtype: bool = True) -> None:
        """Give a parameter other values, of its own dtype or of theirs."""
        before = parameter.data
        self._undo.append(lambda: setattr(parameter, "data", before))
        parameter.data = (value.to(before.dtype) if own_dtype else value).contiguous()

    def forward(self, module: nn.Module, forward: Callable[..., Any]) -> None:
        """Have one module run another function, which is called without the module."""
        own = vars(module)
        before = own.get("forward")
        self._undo.append(lambda: own.pop("forward") if before is None else own.update(forward=before))
        own["forward"] = forward

    def around(self, module: nn.Module, change: Callable[..., Any]) -> None:
        """Have one module run ``change(run, *args)``, where ``run`` is what it ran before."""
        self.forward(module, partial(change, module.forward))


def _is_registered(owner: Any, name: str) -> bool:
    kinds = ("_parameters", "_modules", "_buffers")
    return isinstance(owner, nn.Module) and any(name in vars(owner)[kind] for kind in kinds)
