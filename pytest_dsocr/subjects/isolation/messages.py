"""Messages between two processes: JSON and the bytes of tensors.

Only plain values and tensors travel, so that no class of the other side's is ever created here. Anything else becomes
an empty object whose type has the same name. Nothing here imports torch, which the other side need not have.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_dsocr.contract.presets import Preset

if TYPE_CHECKING:
    from torch import Tensor

REFUSAL = "refusal"
"""The kind of a message that says what was raised; a request ends in one, or in an ``answer``."""


class Channel:
    """An end of the pipe between the two processes. One thread may send while another receives."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.connection = connection

    def send(self, kind: str, value: object = None) -> None:
        """Send a message; raise ``OSError`` if the other end is closed."""
        buffers: list[memoryview] = []
        packed = _pack(value, buffers)
        header = {"kind": kind, "value": packed, "buffers": [buffer.nbytes for buffer in buffers]}
        self.connection.send_bytes(json.dumps(header).encode())
        for buffer in filter(len, buffers):
            self.connection.send_bytes(buffer)

    def receive(self) -> tuple[str, Any]:
        """Wait for a message; raise ``EOFError`` or ``OSError`` where none will come."""
        header = json.loads(self.connection.recv_bytes())
        buffers = [bytearray(size) for size in header["buffers"]]
        for buffer in filter(None, buffers):
            self.connection.recv_bytes_into(buffer)
        return header["kind"], _unpack(header["value"], buffers)


def _pack(value: object, buffers: list[memoryview]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):  # of a subclass JSON takes the value alone
        return value
    if (torch := sys.modules.get("torch")) and isinstance(value, torch.Tensor):
        return _pack_tensor(value, buffers)
    if isinstance(value, Mapping):
        return {"map": [[_pack(key, buffers), _pack(item, buffers)] for key, item in value.items()]}
    if isinstance(value, Preset):
        return {"preset": asdict(value)}
    if isinstance(value, Path):
        return {"path": str(value.absolute())}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return {"tuple" if isinstance(value, tuple) else "list": [_pack(item, buffers) for item in value]}
    return {"other": type(value).__name__}


def _pack_tensor(tensor: Tensor, buffers: list[memoryview]) -> Any:
    import torch

    if tensor.is_meta or tensor.layout is not torch.strided or tensor.is_quantized:
        layout = "meta" if tensor.is_meta else str(tensor.layout).removeprefix("torch.")
        return {"other": f"{layout} tensor of {tensor.dtype}"}
    own = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    buffers.append(own.reshape(-1).view(torch.uint8).numpy().data)
    return {"tensor": len(buffers) - 1, "dtype": str(own.dtype).removeprefix("torch."), "shape": [*own.shape]}


def _unpack(packed: Any, buffers: Sequence[bytearray]) -> Any:
    match packed:
        case {"tensor": number}:
            return _unpack_tensor(packed, buffers[number])
        case {"map": items}:
            return {_unpack(key, buffers): _unpack(item, buffers) for key, item in items}
        case {"preset": sizes}:
            return Preset.from_json(sizes)
        case {"path": path}:
            return Path(path)
        case {"other": name}:
            return type(name, (), {})()
        case {"list": items}:
            return [_unpack(item, buffers) for item in items]
        case {"tuple": items}:
            return tuple(_unpack(item, buffers) for item in items)
    return packed


def _unpack_tensor(about: Mapping[str, Any], buffer: bytearray) -> Tensor:
    import torch

    dtype = getattr(torch, about["dtype"])
    flat = torch.frombuffer(buffer, dtype=dtype) if buffer else torch.empty(0, dtype=dtype)
    return flat.reshape(about["shape"])
