"""Safetensors on disk: loaded into a model, written from one, and identified by their content."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, TypedDict

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.base.reading import FileName, Format, is_regular

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
WRITTEN = "model-00001-of-000001.safetensors"
ITEM_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
NAMED = 3
"""Most tensors or files that a message names."""
COMPUTED = ".position_ids"
"""A buffer that the vendor's class saves into some checkpoints; it has no weights."""


class _Index(TypedDict):
    weight_map: dict[str, FileName]


INDEXES = Format(_Index, "fetch the checkpoint's index and weights again", MachineError)
Stamps = tuple[tuple[Path, int, int], ...]
"""Path of each file, with its size in bytes and its modification time in ns."""
OnBytes = Callable[[int, int], None]
"""Called with the bytes done and their total."""


@dataclass(frozen=True)
class StoredTensor:
    """Location of a stored tensor, with its shape and dtype there."""

    path: Path
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"

    @property
    def n_bytes(self) -> int:
        """Bytes in the file."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]


def load_weights(model: nn.Module, folder: Path, *, on_progress: OnBytes | None = None) -> None:
    """Fill ``model``'s parameters in place from the safetensors in ``folder``, cast to the parameters' dtype.

    Names and shapes are compared before any tensor is read. Then tensors are read one by one from the mapped file, so
    the model is in memory once.

    Raises:
        DsocrError: if a file is missing or broken, or a tensor is missing, surplus or of another shape.
    """
    parameters = dict(model.named_parameters())
    stored = read_headers(folder)
    _check_fit(parameters, stored, folder)
    total_bytes = sum(tensor.n_bytes for tensor in stored.values())
    done_bytes = 0
    with torch.no_grad():
        for name, tensor in _read(stored):
            parameters[name].copy_(tensor)
            done_bytes += tensor.nbytes
            if on_progress:
                on_progress(done_bytes, total_bytes)


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Return every tensor in ``folder`` by its name, in its stored dtype; raises as :func:`read_headers`."""
    return dict(_read(read_headers(folder)))


def save_weights(state: Mapping[str, Tensor], folder: Path) -> None:
    """Write ``state`` as safetensors with an index, under file names like the published checkpoint's.

    ``folder`` is created if it is absent.

    Raises:
        DsocrError: if ``folder`` already has weights.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.glob("*.safetensors")):
        raise DsocrError(f"{folder} holds weights already; give an empty folder")
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    total_bytes = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total_bytes}, "weight_map": dict.fromkeys(state, WRITTEN)}
    with tempfile.TemporaryDirectory(dir=folder, prefix=".writing-") as unfinished:
        save_file(tensors, Path(unfinished) / WRITTEN, metadata={"format": "pt"})
        (Path(unfinished) / INDEX).write_text(json.dumps(index, indent=2), encoding="utf-8")
        for file in (WRITTEN, INDEX):
            (Path(unfinished) / file).replace(folder / file)


def fingerprint(folder: Path) -> str:
    """Return a SHA-256 of the weights in ``folder``, independent of their distribution over files.

    It is the hash of the sorted lines ``name dtype [shape] hash-of-data``, so tensors are hashed in parallel. A process
    computes it once for files that have not changed, since a full-size checkpoint takes long.
    """
    stamps = [(path.resolve(), path.stat()) for path in _files(folder)]
    return _fingerprint(folder, tuple((path, stamp.st_size, stamp.st_mtime_ns) for path, stamp in stamps))


@cache
def _fingerprint(folder: Path, stamps: Stamps) -> str:
    """Return the fingerprint of files of such sizes and times of writing."""
    stored = read_headers(folder)
    with ThreadPoolExecutor() as pool:
        lines = pool.map(lambda item: f"{item[0]} {stored[item[0]]} {_hash(item[1])}\n", _read(stored))
        return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def read_headers(folder: Path) -> dict[str, StoredTensor]:
    """Return the tensors of the safetensors in ``folder``, from the files' headers only.

    Raises:
        DsocrError: if there are none, or one is missing, broken, or repeats a tensor of another.
    """
    stored: dict[str, StoredTensor] = {}
    for path in _files(folder):
        for name, tensor in _header(path):
            if name in stored:
                raise DsocrError(f"{path} and {stored[name].path} both hold {name}; leave one checkpoint in {folder}")
            stored[name] = tensor
    return stored


def _files(folder: Path) -> list[Path]:
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).exists():
        return _indexed_files(folder / INDEX)
    files = sorted(filter(is_regular, folder.glob("*.safetensors")))
    if not files:
        raise MachineError(f"{folder} has no *.safetensors; fetch the checkpoint's weights into it")
    return files


def _indexed_files(index: Path) -> list[Path]:
    names = sorted({*INDEXES.read(index)["weight_map"].values()})
    absent = [name for name in names if not (index.parent / name).is_file()]
    if absent:
        raise MachineError(
            f"{index.parent} lacks {_first_few(absent)} of the {len(names)} files that {INDEX} lists; fetch them"
        )
    return [index.parent / name for name in names]


def _header(path: Path) -> Iterator[tuple[str, StoredTensor]]:
    with _open(path) as file:
        for name in file.keys():  # noqa: SIM118 - the file is no mapping
            part = file.get_slice(name)
            if not name.endswith(COMPUTED):
                yield name, StoredTensor(path, tuple(part.get_shape()), part.get_dtype())


def _read(stored: Mapping[str, StoredTensor]) -> Iterator[tuple[str, Tensor]]:
    for path in dict.fromkeys(tensor.path for tensor in stored.values()):
        with _open(path) as file:
            yield from ((name, file.get_tensor(name)) for name, tensor in stored.items() if tensor.path == path)


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError) as error:
        raise MachineError(f"{path} is not a whole safetensors file ({error}); fetch it again") from error


def _check_fit(parameters: Mapping[str, Tensor], stored: Mapping[str, StoredTensor], folder: Path) -> None:
    assert not any(parameter.is_meta for parameter in parameters.values()), "the model has no memory yet"
    misfits = [
        f"{name} ({stored[name]} for {list(parameter.shape)})"
        for name, parameter in parameters.items()
        if name in stored and not _fits(stored[name], parameter)
    ]
    kinds = {
        "missing": [name for name in parameters if name not in stored],
        "surplus": [name for name in stored if name not in parameters],
        "misshapen": misfits,
    }
    found = [f"{len(names)} {kind}: {_first_few(names)}" for kind, names in kinds.items() if names]
    if found:
        raise DsocrError(
            f"the weights in {folder} do not fit the model, {'; '.join(found)}; "
            "use the weights and the config.json of one checkpoint"
        )


def _fits(stored: StoredTensor, parameter: Tensor) -> bool:
    return stored.dtype in ITEM_BYTES and stored.shape == tuple(parameter.shape)


def _first_few(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")


def _hash(tensor: Tensor) -> str:
    return hashlib.sha256(tensor.reshape(-1).view(torch.uint8).numpy().data).hexdigest()
