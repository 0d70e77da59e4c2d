"""Handles of a subject's modules, states and caches in another process."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_dsocr.subjects.isolation.transport import ChildProcess

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.hooks import RemovableHandle

    from pytest_dsocr.subjects.isolation.subject import IsolatedSubject


Hook = Callable[..., Any]


class IsolatedModule:
    """A module in the subject's process, which can be watched."""

    def __init__(self, subject: IsolatedSubject, name: str) -> None:
        self._subject, self._name = subject, name

    def register_forward_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(None, given, output)`` after each call; ``given`` is empty unless ``hook.takes_input``."""
        return self._register("forward_hook", hook)

    def register_forward_pre_hook(self, hook: Hook) -> RemovableHandle:
        """Call ``hook(None, ())`` before each call of the module."""
        return self._register("forward_pre_hook", lambda module, given, _output: hook(module, given))

    def _register(self, kind: str, hook: Hook) -> RemovableHandle:
        from torch.utils.hooks import RemovableHandle

        handle = RemovableHandle(self._subject.hooks)
        self._subject.hooks[handle.id] = hook
        takes_input = getattr(hook, "takes_input", False)
        ask = partial(self._subject.ask, "vision", "module", "hook", name=self._name, kind=kind)
        ask(hook=handle.id, takes_input=takes_input)
        return handle


class IsolatedState:
    """Handle of a decoding state in the subject's process.

    Args:
        subject: the subject of the state.
        process: the process with the state.
        number: the state's number there.
        logits: logits of the next token.
        chosen: the tokens that the subject chooses, if they are known in advance.
        given: the tensors that prefill was given: what is written into them later is written there as well.
    """

    def __init__(
        self,
        subject: IsolatedSubject,
        process: ChildProcess,
        number: int,
        logits: Any,
        chosen: Any,
        given: Mapping[str, Tensor],
    ) -> None:
        self._subject, self._process, self._number = subject, process, number
        self._given, self._versions = given, _versions(given)
        self.logits, self.chosen = logits, chosen
        weakref.finalize(self, lambda: process.dropped.append(number))

    @property
    def cache(self) -> IsolatedCache:
        """The key-value cache, asked each time."""
        return IsolatedCache(self)

    def ask(self, what: str, method: str, **how: Any) -> Any:
        """Ask for a part of it."""
        return self._subject.ask("decode", method, what, of=self._process, state=self._number, **how)

    def changed(self) -> dict[str, Tensor]:
        """Return the tensors that were written into since they were last sent."""
        before, self._versions = self._versions, _versions(self._given)
        return {name: self._given[name] for name, version in self._versions.items() if version != before[name]}


class IsolatedCache:
    """The cache of a state: ``length``, ``layers``, ``bytes_per_token``, and by layer ``keys`` and ``values``."""

    def __init__(self, state: IsolatedState) -> None:
        self._state = state

    def __getattr__(self, name: str) -> Any:
        return partial(self._get, name) if name in ("keys", "values") else self._get(name)

    def _get(self, name: str, *given: int) -> Any:
        return self._state.ask("state", f"cache.{name}", path=f"cache.{name}", given=given)


def _versions(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Count the writes into each tensor; of those made for inference alone torch does not count."""
    return {name: tensor._version for name, tensor in tensors.items() if not tensor.is_inference()}
