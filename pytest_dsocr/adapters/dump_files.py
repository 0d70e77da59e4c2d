"""The files of a dump: tensors as ``.npy``, ``.npz``, ``.safetensors`` or ``.raw``, and the text, with limits on sizes.

A ``.raw`` file is a line of JSON, ``{"dtype": "float32", "shape": [-1, 2017]}``, then the bytes, little-endian and
in C order. Unknown programs write these files, so messages about damaged ones name the file.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from msgspec import Struct
from safetensors.torch import load as load_safetensors
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.reading import Format

ADVICE = "docs/adapters.md has the names, shapes and formats"
TEXT = "text.txt"
MOST_BYTES = 4 * 2**30
"""Largest size of a file: logits of a thousand steps of the real vocabulary take an eighth of it."""


class RawHeader(Struct, forbid_unknown_fields=True):
    """The first line of a ``.raw`` file."""

    dtype: Literal["float32", "float16", "bfloat16", "float64", "int64", "int32", "uint8", "bool"]
    shape: list[int]
    """Sizes of the axes; a single -1 follows from the file's size."""


FILE = Format(RawHeader, ADVICE, MachineError, most_bytes=MOST_BYTES)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return a file's tensors by name; a format without names uses the name of the file.

    Only this function reads unknown programs' bytes. Parsers may raise anything on them, so all errors name the file.

    Raises:
        DsocrError: if it cannot be read, is too large, or is damaged.
    """
    data = FILE.read_bytes(path)
    try:
        tensors = READERS[path.suffix](path, data)
    except DsocrError:
        raise
    except Exception as error:
        raise FILE.fault(path, f"is damaged: {error or type(error).__name__}") from error
    for name, tensor in tensors.items():
        if tensor.is_complex() or not tensor.ndim:
            kind = f"{name} of {tensor.dtype} and shape {list(tensor.shape)}"
            raise FILE.fault(path, f"holds {kind}, which is no array of real numbers")
    return tensors


def tensor_files(folder: Path) -> list[Path]:
    """Return the files of a folder that are named as tensors are, sorted; not all of them need be readable."""
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in READERS)
    except OSError as error:
        raise FILE.fault(folder, f"cannot be read ({error.strerror})") from error


def write_tensor(folder: Path, name: str, tensor: Tensor) -> None:
    """Write a tensor as ``.npy``. The format has no bfloat16, so float32 replaces it without loss."""
    own = tensor.detach().cpu()
    np.save(folder / f"{name}.npy", (own.float() if own.dtype is torch.bfloat16 else own).numpy(), allow_pickle=False)


def _of_npy(path: Path, data: bytes) -> dict[str, Tensor]:
    return {path.stem: _array(data)}


def _of_npz(path: Path, data: bytes) -> dict[str, Tensor]:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        if (size := sum(one.file_size for one in file.infolist())) > MOST_BYTES:
            raise ValueError(f"it unpacks to {size} bytes, and {MOST_BYTES} are allowed")
        return {name.removesuffix(".npy"): _array(file.read(name)) for name in file.namelist()}


def _array(data: bytes) -> Tensor:
    """Read an array of ``.npy``; numpy's own reader allocates what a header claims before it looks for the bytes."""
    file = io.BytesIO(data)
    shape, is_fortran, dtype = NPY_HEADS[np.lib.format.read_magic(file)](file)
    values = np.frombuffer(data, dtype, offset=file.tell())
    return _tensor(values.reshape(shape[::-1]).T if is_fortran else values.reshape(shape))


def _tensor(found: np.ndarray[Any, Any]) -> Tensor:
    if found.dtype.kind == "V" and found.dtype.itemsize == torch.bfloat16.itemsize:  # the form that ml_dtypes writes
        return _tensor(found.view(np.int16)).view(torch.bfloat16)
    if found.dtype.kind not in "biuf":
        raise ValueError(f"it holds {found.dtype}, which is no real number")
    own = found.astype(np.int64) if found.dtype.kind == "u" and found.dtype.itemsize > 1 else found
    return torch.from_numpy(np.require(own, own.dtype.newbyteorder("="), ["C", "W"]))


def _of_raw(path: Path, data: bytes) -> dict[str, Tensor]:
    line, _, content = data.partition(b"\n")
    head = FILE.decode(line, path)
    dtype = np.dtype("V2" if head.dtype == "bfloat16" else head.dtype).newbyteorder("<")
    return {path.stem: _tensor(np.frombuffer(content, dtype).reshape(head.shape))}


NPY_HEADS: Mapping[tuple[int, int], Callable[[IO[bytes]], tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""By version; the third is of names that arrays of numbers do not have."""
READERS: Mapping[str, Callable[[Path, bytes], dict[str, Tensor]]] = {
    ".npy": _of_npy,
    ".npz": _of_npz,
    ".safetensors": lambda _, data: load_safetensors(data),
    ".raw": _of_raw,
}
