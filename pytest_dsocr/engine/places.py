"""Where a checkpoint's files are on this machine; imports no torch, so that a model's sizes can be read at once."""

from __future__ import annotations

from pathlib import Path

from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.names import HUB_NAME, MINI, VALID_CHECKPOINT
from pytest_dsocr.engine.sizes import synthetic
from pytest_dsocr.foundation.errors import MachineError

MINI_FOLDER = Path(__file__).parents[1] / "mini" / "checkpoint"


def architecture_of(path_or_name: str | Path) -> Architecture:
    """Give a checkpoint's dimensions; takes and raises what :func:`~pytest_dsocr.engine.checkpoint.resolve` does."""
    known = synthetic(str(path_or_name))
    return known[0] if known else Architecture.from_folder(folder_of(path_or_name))


def folder_of(path_or_name: str | Path) -> Path:
    """Find the folder of a checkpoint that is not synthetic; the network is never asked.

    Raises:
        MachineError: where there is none of that name.
    """
    name = str(path_or_name)
    if path_or_name == MINI:
        return _embedded()
    if synthetic(name):
        raise MachineError(f"{name} is made of random numbers and has no files; give a checkpoint that has a folder")
    folder = Path(name)
    if name and folder.is_dir():
        return folder
    if HUB_NAME.fullmatch(name):
        return _cached_snapshot(name)
    raise MachineError(f"{name!r} is no checkpoint; {VALID_CHECKPOINT}")


def _embedded() -> Path:
    if not MINI_FOLDER.is_dir():
        raise MachineError(f"this installation of pytest-dsocr is without its checkpoint {MINI!r}; install it again")
    return MINI_FOLDER


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
