"""From what a user types to a checkpoint: the embedded one, a folder, a synthetic model, or a name in the hub cache."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from torch import nn

from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.names import HUB_NAME, MINI, SYNTHETIC_NAME, VALID_CHECKPOINT
from pytest_dsocr.engine.synthetic import DEFAULT_SEED, SYNTHETIC, fill, synthetic_fingerprint
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.engine.weights import OnBytes, fingerprint, load_weights
from pytest_dsocr.foundation.errors import MachineError

MINI_FOLDER = Path(__file__).parents[1] / "mini" / "checkpoint"
HUB_SNAPSHOT = re.compile(r"/models--([\w.-]+?)--([\w.-]+)/snapshots/[^/]+$")


class _WeightSource(Protocol):
    def __call__(self, model: nn.Module, *, on_progress: OnBytes | None) -> None: ...


@dataclass(frozen=True)
class Checkpoint:
    """An architecture with the weights and the tokenizer that belong to it."""

    name: str
    """What the user typed."""
    architecture: Architecture
    tokenizer: Tokenizer
    weights: _WeightSource
    """What fills a model's parameters."""
    fingerprint: Callable[[], str]
    folder: Path | None = None
    """Where its files are; None for a synthetic one."""

    @property
    def label(self) -> str:
        """A name for reports and recordings, which says nothing of where a folder is on this machine.

        A snapshot in the hub's cache, whose folder is called by its revision, has the hub's name.
        """
        folder = Path(self.name).resolve()
        if not folder.is_dir():
            return self.name
        repository = HUB_SNAPSHOT.search(folder.as_posix())
        return "/".join(repository.groups()) if repository else folder.name

    @cached_property
    def sha256(self) -> str:
        """A hash that tells its weights from any other's; reads them all, once in a process."""
        return self.fingerprint()

    def load_into(self, model: nn.Module, on_progress: OnBytes | None = None) -> None:
        """Fill ``model``'s parameters in place; raise ``DsocrError`` where the weights do not fit it."""
        self.weights(model, on_progress=on_progress)


def resolve(path_or_name: str | Path) -> Checkpoint:
    """Find a checkpoint on this machine; the network is never asked.

    Args:
        path_or_name: ``mini``, which is part of this package; a folder; ``synthetic:<name>``, with ``@<seed>`` for
            other weights than the default's; or a hub name such as ``deepseek-ai/DeepSeek-OCR``, if the local hub
            cache holds it.

    Raises:
        DsocrError: where there is none of that name, or its config or its tokenizer is missing or broken.
    """
    name = str(path_or_name)
    if synthetic := SYNTHETIC_NAME.fullmatch(name):
        return _synthetic(name, synthetic["size"], int(synthetic["seed"] or DEFAULT_SEED))
    if path_or_name == MINI:
        return _from_folder(name, _embedded())
    folder = Path(name)
    if name and folder.is_dir():
        return _from_folder(name, folder)
    if HUB_NAME.fullmatch(name):
        return _from_folder(name, _cached_snapshot(name))
    raise MachineError(f"{name!r} is no checkpoint; {VALID_CHECKPOINT}")


def _synthetic(name: str, size: str, seed: int) -> Checkpoint:
    architecture = SYNTHETIC[size]
    tokenizer = Tokenizer.byte_level(architecture.decoder.vocab_size)
    fingerprint = partial(synthetic_fingerprint, architecture, seed)
    return Checkpoint(name, architecture, tokenizer, partial(fill, seed=seed), fingerprint)


def _embedded() -> Path:
    if not MINI_FOLDER.is_dir():
        raise MachineError(f"this installation of pytest-dsocr is without its checkpoint {MINI!r}; install it again")
    return MINI_FOLDER


def _from_folder(name: str, folder: Path) -> Checkpoint:
    architecture, tokenizer = Architecture.from_folder(folder), Tokenizer.from_folder(folder)
    weights, identity = partial(load_weights, folder=folder), partial(fingerprint, folder)
    return Checkpoint(name, architecture, tokenizer, weights, identity, folder)


def _cached_snapshot(name: str) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MachineError(
            f"{name} is not a folder, and hub names need huggingface-hub; "
            "give a folder or run: pip install 'pytest-dsocr[hub]'"
        ) from None
    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):
        raise MachineError(
            f"{name} is neither a folder nor in the local hub cache; fetch it with: hf download {name}"
        ) from None
