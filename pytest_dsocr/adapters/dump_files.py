"""The files of a dump: tensors as ``.npy``, ``.npz``, ``.safetensors`` or ``.raw``, and the text; read within bounds.

A ``.raw`` file is a line of JSON, ``{"dtype": "float32", "shape": [-1, 2017]}``, and the bytes behind it, little-endian
and in the order of C. They are written by strangers' programs, and damaged ones are told by name.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from msgspec import Struct
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from pytest_dsocr.foundation.errors import MachineError
from pytest_dsocr.foundation.reading import Format, is_regular

ADVICE = "docs/dump.md has the names, shapes and formats"
TEXT = "text.txt"
MOST_BYTES = 4 * 2**30
"""Of a file: logits of a thousand steps of the real vocabulary take an eighth."""


class Head(Struct, forbid_unknown_fields=True):
    """The first line of a ``.raw`` file."""

    dtype: Literal["float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool"]
    shape: list[int]
    """One of them may be -1, for what follows from the file's size."""


FILE = Format(Head, ADVICE, MachineError, most_bytes=MOST_BYTES)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors that a file holds, by name: that of the file, where the format has none.

    Raises:
        DsocrError: where it cannot be read, is too large, or is damaged.
    """
    data = FILE.read_bytes(path)
    try:
        return READERS[path.suffix](path, data)
    except (ValueError, RuntimeError, MemoryError, SafetensorError, zipfile.BadZipFile) as error:
        raise FILE.fault(path, f"is damaged: {error or type(error).__name__}") from error


def tensor_files(folder: Path) -> list[Path]:
    """Return the files of a folder that hold tensors, sorted."""
    return sorted(path for path in folder.iterdir() if path.suffix in READERS and is_regular(path))


def write_tensor(folder: Path, name: str, tensor: Tensor) -> None:
    """Write a tensor as ``.npy``, which has no bfloat16: that becomes float32, which holds each of its values."""
    own = tensor.detach().cpu()
    np.save(folder / f"{name}.npy", (own.float() if own.dtype is torch.bfloat16 else own).numpy(), allow_pickle=False)


def _of_numpy(path: Path, data: bytes) -> dict[str, Tensor]:
    found = np.load(io.BytesIO(data), allow_pickle=False)
    if isinstance(found, np.ndarray):
        return {path.stem: _tensor(found)}
    if (size := sum(one.file_size for one in found.zip.infolist())) > MOST_BYTES:
        raise ValueError(f"it unpacks to {size} bytes, and {MOST_BYTES} are allowed")
    return {name: _tensor(values) for name, values in found.items()}


def _tensor(found: np.ndarray[Any, Any]) -> Tensor:
    if found.dtype.kind == "V" and found.dtype.itemsize == torch.bfloat16.itemsize:  # as ml_dtypes writes it
        return torch.from_numpy(found.view(np.int16)).view(torch.bfloat16)
    if found.dtype.kind not in "biuf":
        raise ValueError(f"it holds {found.dtype}, which is no real number")
    own = found.astype(np.int64) if found.dtype.kind == "u" and found.dtype.itemsize > 1 else found
    return torch.from_numpy(np.require(own, own.dtype.newbyteorder("="), ["C", "W"]))


def _of_raw(path: Path, data: bytes) -> dict[str, Tensor]:
    line, _, content = data.partition(b"\n")
    head = FILE.decode(line, path)
    whole = torch.frombuffer(bytearray(content), dtype=getattr(torch, head.dtype))
    return {path.stem: whole.reshape(head.shape)}


READERS: Mapping[str, Callable[[Path, bytes], dict[str, Tensor]]] = {
    ".npy": _of_numpy,
    ".npz": _of_numpy,
    ".safetensors": lambda _, data: load_safetensors(data),
    ".raw": _of_raw,
}
