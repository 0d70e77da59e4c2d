"""From what a user types to a checkpoint, a device and a dtype."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import torch

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.engine.places import folder_of, split_model, synthetic
from pytest_dsocr.engine.synthetic import fill, synthetic_fingerprint
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.engine.weights import fingerprint, load_weights
from pytest_dsocr.models.architecture import Architecture

DTYPES = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
}


def dtype_named(name: str | torch.dtype) -> torch.dtype:
    """Return the dtype called ``name``; raise ``DsocrError`` listing the valid ones."""
    if isinstance(name, torch.dtype):
        name = str(name).removeprefix("torch.")
    if name not in DTYPES:
        raise DsocrError(f"dtype {name!r} is unknown; choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


def device_named(name: str | torch.device) -> torch.device:
    """Return the device called ``name``; raise ``DsocrError`` if this machine does not have it."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise DsocrError(f"device {name!r} is unknown; choose cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise DsocrError(f"device {name!r} is not supported; choose cpu, cuda or cuda:N")
    if device.type == "cuda":
        _require_gpu(device)
    return device


def _require_gpu(device: torch.device) -> None:
    if not torch.cuda.is_available():
        raise MachineError(
            f"device {str(device)!r} was asked for and PyTorch finds no CUDA GPU; "
            "choose cpu, or install a CUDA build of PyTorch on a machine with a GPU"
        )
    if (device.index or 0) >= torch.cuda.device_count():
        raise MachineError(
            f"device {str(device)!r} was asked for and there are {torch.cuda.device_count()} GPUs; "
            f"choose cuda:0 to cuda:{torch.cuda.device_count() - 1}"
        )


HUB_SNAPSHOT = re.compile(r"/models--([\w.-]+?)--([\w.-]+)/snapshots/[^/]+$")


@dataclass(frozen=True)
class Checkpoint:
    """An architecture with the weights and the tokenizer that belong to it."""

    name: str
    """Name that the user typed."""
    architecture: Architecture
    tokenizer: Tokenizer
    load_into: Callable[..., None]
    """Fills a model's parameters in place, and calls ``on_progress``; raises ``DsocrError`` if they do not fit."""
    fingerprint: Callable[[], str]
    folder: Path | None = None
    """Folder of its files; None for a synthetic checkpoint."""

    @property
    def label(self) -> str:
        """Name for reports and recordings, without the location of a folder on this machine.

        A snapshot in the hub's cache, whose folder is named after its revision, has the hub's name.
        """
        family, name = split_model(self.name)
        folder = Path(name).resolve()
        if not folder.is_dir():
            return self.name
        repository = HUB_SNAPSHOT.search(folder.as_posix())
        own = "/".join(repository.groups()) if repository else folder.name
        return f"{family.name}:{own}" if family else own

    @cached_property
    def sha256(self) -> str:
        """A hash that identifies its weights, as which model; reads them all, once in a process."""
        of_weights, model = self.fingerprint(), self.architecture.family
        return of_weights if model.is_unmarked else hashlib.sha256(f"{model.name} {of_weights}".encode()).hexdigest()


def resolve(path_or_name: str | Path) -> Checkpoint:
    """Find a checkpoint on this machine, without the network.

    Args:
        path_or_name: ``mini``, which is part of this package; a folder; ``synthetic:<name>``, with ``@<seed>`` for
        weights other than the default's; or a hub name such as ``deepseek-ai/DeepSeek-OCR``, if the local hub
        cache has it. A model's name and a colon may precede each, if the weights are of that model.

    Raises:
        DsocrError: if there is none with that name, or its config or its tokenizer is missing or broken.
    """
    name = str(path_or_name)
    if known := synthetic(name):
        return _synthetic(name, *known)
    return _from_folder(name, folder_of(path_or_name))


def _synthetic(name: str, architecture: Architecture, seed: int) -> Checkpoint:
    tokenizer = Tokenizer.byte_level(architecture.decoder.vocab_size)
    fingerprint = partial(synthetic_fingerprint, architecture, seed)
    return Checkpoint(name, architecture, tokenizer, partial(fill, seed=seed), fingerprint)


def _from_folder(name: str, folder: Path) -> Checkpoint:
    architecture = Architecture.from_folder(folder, split_model(name)[0])
    tokenizer = Tokenizer.from_folder(folder)
    weights, identity = partial(load_weights, folder=folder), partial(fingerprint, folder)
    return Checkpoint(name, architecture, tokenizer, weights, identity, folder)
