"""Where decoding stands in the subject's process, and its cache, asked for from here."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.subjects.isolation.process import SubjectProcess
    from pytest_dsocr.subjects.isolation.subject import IsolatedSubject


class IsolatedState:
    """Where decoding stands, in the subject's process.

    Args:
        subject: whose it is.
        process: the one that has it.
        number: it has there.
        logits: of the next token.
        given: the tensors that prefill was given: what is written into them later is written there as well.
    """

    def __init__(
        self, subject: IsolatedSubject, process: SubjectProcess, number: int, logits: Any, given: Mapping[str, Tensor]
    ) -> None:
        self._subject, self._process, self._number = subject, process, number
        self._given, self._versions = given, _versions(given)
        self.logits = logits
        weakref.finalize(self, lambda: process.dropped.append(number))

    @property
    def cache(self) -> IsolatedCache:
        """The key-value cache."""
        return IsolatedCache(self)

    def ask(self, what: str, method: str, **how: Any) -> Any:
        """Ask for a part of it."""
        return self._subject.ask("decode", method, what, of=self._process, state=self._number, **how)

    def changed(self) -> dict[str, Tensor]:
        """Give the tensors that were written into since they were last sent."""
        before, self._versions = self._versions, _versions(self._given)
        return {name: self._given[name] for name, version in self._versions.items() if version != before[name]}


class IsolatedCache:
    """The cache of a state in the subject's process, asked for each time."""

    def __init__(self, state: IsolatedState) -> None:
        self._state = state

    @property
    def length(self) -> Any:
        """Positions held."""
        return self._get("length")

    @property
    def layers(self) -> Any:
        """Number of layers."""
        return self._get("layers")

    @property
    def bytes_per_token(self) -> Any:
        """What it says that a token takes; None where it says nothing."""
        return self._get("bytes_per_token")

    def keys(self, layer: int) -> Any:
        """Give a layer's keys, ``[B, G, S, D]``."""
        return self._get("keys", layer)

    def values(self, layer: int) -> Any:
        """Give a layer's values, ``[B, G, S, D]``."""
        return self._get("values", layer)

    def _get(self, name: str, *given: int) -> Any:
        return self._state.ask("state", f"cache.{name}", path=f"cache.{name}", given=given)


def _versions(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Count the writes into each tensor; of those made for inference alone torch does not count."""
    return {name: tensor._version for name, tensor in tensors.items() if not tensor.is_inference()}
