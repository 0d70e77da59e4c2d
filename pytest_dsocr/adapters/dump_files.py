"""The files of a case's dump: tensors as ``.npy``, ``.npz``, ``.safetensors`` or ``.raw``, and the text, within limits.

A ``.raw`` file is a line of JSON, ``{"dtype": "float32", "shape": [-1, 2017]}``, then the bytes, little-endian and
in C order. Unknown programs write these files, so messages about damaged ones name the file.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import torch
from msgspec import Struct
from safetensors.torch import load as load_safetensors
from torch import Tensor

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.reading import Format
from pytest_dsocr.base.words import count
from pytest_dsocr.contract import TENSORS
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.models.spec import PREFILL

ADVICE = "docs/adapters.md has the names, shapes and formats"
TEXT = "text.txt"
LOGITS, TOKENS, LENGTHS = "logits", "tokens", "cache_lengths"
COUNTS = frozenset((TOKENS, LENGTHS))
MOST = 2**31 - 1
"""The greatest token and length."""
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


def block_name(name: str) -> str:
    """Return the name of the tensor that a file named ``STAGE.VIEW.BLOCK`` or ``prefill.BLOCK`` holds; others stay."""
    whole, _, block = name.rpartition(".")
    return f"{whole}/{block}" if block.isdecimal() else name


@dataclass(frozen=True, eq=False)
class Dump:
    """Contents of one case's folder; any file may be missing."""

    tensors: Mapping[str, Tensor]
    text: str | None
    tokens: Sequence[int]
    """Tokens that its steps follow: the program's own choices, as far as they were written, or the reference's."""

    @classmethod
    def read(cls, folder: Path) -> Dump:
        """Read a folder; raise ``DsocrError`` if a file is damaged or has impossible contents."""
        tensors: dict[str, Tensor] = {}
        try:
            paths = sorted(path for path in folder.iterdir() if path.suffix in READERS)
        except OSError as error:
            raise FILE.fault(folder, f"cannot be read ({error.strerror})") from error
        for path in paths:
            found = read_tensors(path)
            if twice := sorted(tensors.keys() & found):
                raise FILE.fault(path, f"holds {twice[0]}, which another file there holds as well")
            tensors |= found | {name: _whole(path, name, found[name]) for name in COUNTS & found.keys()}
        many = [name for name in (LOGITS, LENGTHS) if name in tensors and len(tensors[name]) > 1]
        if many and TOKENS not in tensors:
            rows = count(len(tensors[many[0]]), "row")
            raise FILE.fault(folder, f"holds {rows} of {many[0]} and no {TOKENS} that says what they follow")
        text = FILE.read_text(folder / TEXT) if os.path.lexists(folder / TEXT) else None
        return cls(tensors, text, tensors.get(TOKENS, torch.empty(0, dtype=torch.long)).tolist())

    def row(self, name: str, fed: Sequence[int]) -> Tensor | None:
        """Return the row written under a name after the tokens ``fed``."""
        first = [self.tensors[one] for one in (PREFILL,) if name == LOGITS and one in self.tensors]
        rows = self.tensors.get(name, first)
        return rows[len(fed)] if [*self.tokens[: len(fed)]] == [*fed] and len(fed) < len(rows) else None

    def inputs(self, own: Inputs) -> dict[str, Tensor]:
        """Return the inputs that were written, in the dtypes of ``own`` if no value is lost, as a batch of one."""
        found = {}
        for name in self.tensors.keys() & {*TENSORS}:
            given, wanted = self.tensors[name], getattr(own, name)
            cast = given.to(wanted.dtype)
            same = cast if cast.to(given.dtype).equal(given) else given
            found[name] = same[None] if given.ndim == wanted.ndim - 1 else same
        return found


def _whole(path: Path, name: str, given: Tensor) -> Tensor:
    """Return tokens or lengths in one axis; raise if a value is no whole number, or exceeds the maximum."""
    flat = given.flatten().double()
    own = flat.clamp(0, MOST).long()
    if (bad := flat[own != flat]).numel():
        raise FILE.fault(path, f"holds {bad[0].item()} in {name}; give whole numbers from 0 to {MOST}")
    return own


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
