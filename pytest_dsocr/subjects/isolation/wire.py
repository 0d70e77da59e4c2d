"""Messages between the run and the subject's process: JSON, followed by the bytes of its tensors.

Only plain values and tensors travel, so that no class of the subject's is ever created here: anything else becomes an
empty object whose type has the same name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_dsocr.contract.presets import Preset

if TYPE_CHECKING:
    from torch import Tensor

REFUSAL = "refusal"
"""The kind of a message that says what the subject raised; a request ends in one, or in an ``answer``."""
JsonValue: TypeAlias = Any
"""A value as JSON can hold it."""


class Channel:
    """One end of the pipe between the two. One thread may send while another receives."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.connection = connection

    def send(self, kind: str, value: object = None) -> None:
        """Send a message; raise ``OSError`` where nobody is there."""
        tensors: list[Tensor] = []
        packed = _pack(value, tensors)
        header = {"kind": kind, "value": packed, "buffers": [tensor.nbytes for tensor in tensors]}
        self.connection.send_bytes(json.dumps(header).encode())
        for tensor in tensors:
            if tensor.nbytes:
                self.connection.send_bytes(_bytes_of(tensor))

    def receive(self) -> tuple[str, Any]:
        """Wait for a message; raise ``EOFError`` or ``OSError`` where none will come."""
        header = json.loads(self.connection.recv_bytes())
        buffers = [bytearray(size) for size in header["buffers"]]
        for buffer in buffers:
            if buffer:
                self.connection.recv_bytes_into(buffer)
        return header["kind"], _unpack(header["value"], buffers)


def has_values(tensor: Tensor) -> bool:
    """Say whether a tensor is dense, with values in it."""
    import torch

    return not tensor.is_meta and tensor.layout is torch.strided and not tensor.is_quantized


def _pack(value: object, tensors: list[Tensor]) -> JsonValue:
    import torch

    if value is None or isinstance(value, bool | int | float | str):  # of a subclass JSON takes the value alone
        return value
    if isinstance(value, torch.Tensor):
        return _pack_tensor(value, tensors)
    if isinstance(value, Mapping):
        return {"map": [[_pack(key, tensors), _pack(item, tensors)] for key, item in value.items()]}
    if isinstance(value, Preset):
        return {"preset": asdict(value)}
    if isinstance(value, Path):
        return {"path": str(value.absolute())}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return {"tuple" if isinstance(value, tuple) else "list": [_pack(item, tensors) for item in value]}
    return {"other": type(value).__name__}


def _pack_tensor(tensor: Tensor, tensors: list[Tensor]) -> JsonValue:
    about = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": [*tensor.shape]}
    if not has_values(tensor):
        return {"empty": about, "layout": "meta" if tensor.is_meta else str(tensor.layout)}
    tensors.append(tensor.detach().resolve_conj().resolve_neg().cpu().contiguous())
    return {"tensor": len(tensors) - 1, **about}


def _bytes_of(tensor: Tensor) -> memoryview:
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _unpack(packed: JsonValue, buffers: Sequence[bytearray]) -> Any:
    if not isinstance(packed, dict):
        return packed
    if "tensor" in packed:
        return _unpack_tensor(packed, buffers[packed["tensor"]])
    if "empty" in packed:
        return _unpack_empty(packed["empty"], packed["layout"])
    if "map" in packed:
        return {_unpack(key, buffers): _unpack(item, buffers) for key, item in packed["map"]}
    if "preset" in packed:
        return Preset.from_json(packed["preset"])
    if "path" in packed:
        return Path(packed["path"])
    if "other" in packed:
        return type(packed["other"], (), {})()
    kind, items = next(iter(packed.items()))
    unpacked = (_unpack(item, buffers) for item in items)
    return tuple(unpacked) if kind == "tuple" else [*unpacked]


def _unpack_tensor(about: Mapping[str, Any], buffer: bytearray) -> Tensor:
    import torch

    dtype = getattr(torch, about["dtype"])
    flat = torch.frombuffer(buffer, dtype=dtype) if buffer else torch.empty(0, dtype=dtype)
    return flat.reshape(about["shape"])


def _unpack_empty(about: Mapping[str, Any], layout: str) -> Tensor:
    import torch

    dtype = getattr(torch, about["dtype"])
    if layout == "torch.sparse_coo":
        return torch.empty(about["shape"], dtype=dtype).to_sparse()
    return torch.empty(about["shape"], dtype=dtype, device="meta")
