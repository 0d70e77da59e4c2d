"""Modules in the subject's process, and hooks on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_dsocr.subjects.isolation.process import SubjectProcess
    from pytest_dsocr.subjects.isolation.subject import IsolatedSubject

Hook = Callable[..., Any]


class IsolatedModule:
    """A module in the subject's process, which can be watched."""

    def __init__(self, subject: IsolatedSubject, name: str) -> None:
        self._subject, self._name = subject, name

    def register_forward_hook(self, hook: Hook) -> HookHandle:
        """Have ``hook(None, (), output)`` called after each call of the module."""
        return self._subject.hook(self._name, "forward_hook", hook)

    def register_forward_pre_hook(self, hook: Hook) -> HookHandle:
        """Have ``hook(None, ())`` called for each call of the module."""
        return self._subject.hook(self._name, "forward_pre_hook", lambda module, given, _output: hook(module, given))


class HookHandle:
    """Removes a hook; a context manager, as torch's is."""

    def __init__(self, subject: IsolatedSubject, process: SubjectProcess | None, number: int) -> None:
        self._subject, self._process, self._number = subject, process, number

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Stop calling the hook."""
        self._subject.unhook(self._number, self._process)
