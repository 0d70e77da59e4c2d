"""What the client and its worker say to one another: JSON lines, with tensors in safetensors files beside them.

The worker says :class:`Hello` once. It answers each :class:`Request` with a :class:`Response` or a :class:`Failure`,
after any number of :class:`Progress`. An answer's tensors lie in ``<id>.safetensors`` in a folder that both know.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.observation.case import Case


@dataclass(frozen=True)
class Hello:
    """The worker's first line."""

    pid: int
    versions: dict[str, str]
    """Of Python and of the packages in its environment."""


@dataclass(frozen=True)
class Request:
    """What the client asks: a method's name and its arguments."""

    id: int
    method: str
    params: dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """A sign of life while a request is under way."""

    id: int
    what: str
    done: int
    total: int | None


@dataclass(frozen=True)
class Response:
    """The result of a request."""

    id: int
    result: Any
    tensors: dict[str, str]
    """dtype and shape of each tensor in the file, by name; without any there is no file."""
    provenance: dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """The exception that a request ended in."""

    id: int
    kind: str
    """The exception's class."""
    message: str
    traceback: str
    """Empty where the message says all."""


FromWorker = Hello | Progress | Response | Failure
Message = FromWorker | Request

_KINDS: Mapping[str, type[Message]] = {kind.__name__: kind for kind in (Hello, Request, Progress, Response, Failure)}


def encode(message: Message) -> bytes:
    """Give a message's line, its end included."""
    return json.dumps({"type": type(message).__name__, **vars(message)}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Read a line; raise ``ValueError`` where it is none of the messages."""
    try:
        fields = json.loads(line)
        return _KINDS[fields.pop("type")](**fields)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ValueError("no message") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Write the tensors, if there are any, and say what they are, as :attr:`Response.tensors` does."""
    if tensors:
        from safetensors.torch import save_file

        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    return _described(tensors)


def read_tensors(path: Path, described: Mapping[str, str]) -> dict[str, Tensor]:
    """Read the tensors of an answer, and remove their file.

    Raises:
        ValueError: where they are not what ``described`` says.
        OSError: where there is no such file.
    """
    if not described:
        return {}
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"its tensors cannot be read: {error}") from error
    path.unlink()
    if _described(tensors) != described:
        raise ValueError("its tensors are not those that it names")
    return tensors


def pack_case(case: Case) -> dict[str, Any]:
    """Take a case apart; its page is named so that any process finds it."""
    return {**asdict(case), "page": str(case.page.absolute())}


def unpack_case(packed: Mapping[str, Any]) -> Case:
    """Put a case together again."""
    from pytest_dsocr.contract.presets import Preset
    from pytest_dsocr.observation.case import Case

    return Case(**{**packed, "page": Path(packed["page"]), "preset": Preset(**packed["preset"])})


def _described(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    return {
        name: f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}" for name, tensor in tensors.items()
    }
