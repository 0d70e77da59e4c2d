"""Whether anyone watches modules: then they are called, and no code that goes past them."""

from __future__ import annotations

from torch import nn


class Hooked:
    """True while a forward hook is on any of some modules or of their parts."""

    def __init__(self, *roots: nn.Module) -> None:
        self._modules = [module for root in roots for module in root.modules()]

    def __bool__(self) -> bool:
        return any(module._forward_hooks or module._forward_pre_hooks for module in self._modules)
