"""Forward hooks of bypassed modules: code can call some from outside; the others need the module itself to run."""

from collections.abc import Callable, Iterable

from torch import Tensor, nn


class Hooks:
    """The forward hooks of some modules.

    Args:
        roots: the modules, with all their parts.
        called_from_outside: those among them whose hooks :func:`called` calls.
    """

    def __init__(self, roots: Iterable[nn.Module], called_from_outside: Iterable[nn.Module]) -> None:
        self._called = [*called_from_outside]
        known = {*self._called}
        self._others = [module for root in roots for module in root.modules() if module not in known]

    @property
    def watched(self) -> bool:
        """Whether there is a hook on what is called from outside."""
        return any(map(_is_hooked, self._called))

    @property
    def inside(self) -> bool:
        """Whether there is a hook that only the module itself can call."""
        keyed = any(
            module._forward_hooks_with_kwargs or module._forward_pre_hooks_with_kwargs for module in self._called
        )
        return keyed or any(map(_is_hooked, self._others))


def called(module: nn.Module, compute: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Compute what ``module`` would of ``x``, and call its forward hooks as it would."""
    for before in module._forward_pre_hooks.values():
        given = before(module, (x,))
        x = x if given is None else given[0] if isinstance(given, tuple) else given
    out = compute(x)
    for after in module._forward_hooks.values():
        changed = after(module, (x,), out)
        out = out if changed is None else changed
    return out


def _is_hooked(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)
