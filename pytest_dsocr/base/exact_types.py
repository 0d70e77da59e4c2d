"""Conversion to exact builtin types and torch's own tensors, without any method of a subclass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

BUILTIN: Sequence[tuple[type, Callable[[Any], Any]]] = (
    (bool, lambda value: value),
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
    (bytes, lambda value: bytes.__add__(value, b"")),
    (list, lambda value: [to_builtin(one) for one in list.__iter__(value)]),
    (tuple, lambda value: tuple(to_builtin(one) for one in tuple.__iter__(value))),
    (dict, lambda value: {to_builtin(name): to_builtin(one) for name, one in dict.items(value)}),
    (set, lambda value: {to_builtin(one) for one in set.__iter__(value)}),
    (frozenset, lambda value: frozenset(to_builtin(one) for one in frozenset.__iter__(value))),
)
"""Conversions to builtin types, by the builtin types' own methods. A subject may return a ``str`` subclass with an
``__eq__`` that is always true, so no method of a subclass may be called."""


def to_builtin(value: Any) -> Any:
    """Return ``value`` converted to the builtin type that it is derived from, with all its items.

    Any other value is returned unchanged. The real type decides, not ``__class__``.
    """
    return next((make(value) for kind, make in BUILTIN if issubclass(type(value), kind)), value)


def is_text(value: object) -> bool:
    """Return whether ``value`` is a ``str`` or of a subclass."""
    return issubclass(type(value), str)


def exact_tensor(given: Tensor) -> Tensor:
    """Return a tensor of torch's own class, with the same memory and without a gradient."""
    import torch
    from torch import Tensor

    with torch._C.DisableTorchFunctionSubclass():
        return Tensor.detach(given if type(given) is Tensor else Tensor.as_subclass(given, Tensor))
