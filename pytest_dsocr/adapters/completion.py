"""Answer of a server with OpenAI's protocol, and errors instead of one."""

from dataclasses import dataclass
from typing import Any

from pytest_dsocr.base.errors import MachineError
from pytest_dsocr.records.config import SubjectFaultError, SubjectHungError

FAILED = 500
"""The least status of an error that is the server's own."""


@dataclass(frozen=True)
class Completion:
    """A whole answer of the server's."""

    text: str
    prompt_tokens: int | None = None
    """Number of tokens as the server counts them; None if it does not, as for the other counts."""
    ended_by: str = ""
    """The server's ``finish_reason``; empty if it gives none."""
    first_ms: float | None = None
    """Milliseconds from the request to the first text of a streamed answer."""
    completion_tokens: int | None = None
    total_tokens: int | None = None
    logprobs: Any = None
    """Log probabilities as the server gives them; None for a streamed answer."""
    between_ms: tuple[float, ...] = ()
    """Milliseconds between the pieces."""


class StatusError(SubjectFaultError):
    """The server answered with another status than 200."""

    status: int


class ServerDownError(SubjectFaultError, MachineError):
    """The server is not there, is overloaded, or has no memory: no verdict on what it serves."""


class OverloadedError(StatusError, ServerDownError):
    """The server reported by its status that it is overloaded."""


class ServerHungError(SubjectHungError, MachineError):
    """The server did not answer in time."""
