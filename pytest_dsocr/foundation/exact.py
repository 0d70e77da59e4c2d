"""Values of unknown origin, rebuilt as builtin types: what a subclass overrides cannot change a verdict.

A ``str`` whose ``__eq__`` is always true equals the reference's text; ``str(x)`` asks its ``__str__``. Here the builtin
types' own methods are called, which no subclass can override.
"""

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
    (list, lambda value: [exact(one) for one in list.__iter__(value)]),
    (tuple, lambda value: tuple(exact(one) for one in tuple.__iter__(value))),
    (dict, lambda value: {exact(name): exact(one) for name, one in dict.items(value)}),
    (set, lambda value: {exact(one) for one in set.__iter__(value)}),
    (frozenset, lambda value: frozenset(exact(one) for one in frozenset.__iter__(value))),
)


def exact(value: Any) -> Any:
    """Return ``value`` in the builtin type that it is derived from, and what it holds likewise.

    Any other value is given as it is. Its real type decides, whatever its ``__class__`` says.
    """
    return next((make(value) for kind, make in BUILTIN if issubclass(type(value), kind)), value)


def is_text(value: object) -> bool:
    """Return whether ``value`` is a ``str``, or of a class derived from it."""
    return issubclass(type(value), str)


def exact_tensor(given: Tensor) -> Tensor:
    """Return a tensor as torch's own class, on the same memory, and without a gradient."""
    import torch
    from torch import Tensor

    with torch._C.DisableTorchFunctionSubclass():
        return Tensor.detach(given if type(given) is Tensor else Tensor.as_subclass(given, Tensor))
