"""Names of checkpoints, the synthetic sizes among them, and where their files are on this machine; imports no torch."""

import re
from dataclasses import replace
from pathlib import Path

from pytest_dsocr.base.errors import DsocrError, MachineError
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.spec import ModelSpec

MINI = "mini"
"""The embedded checkpoint that runs by default; a folder of this name is ``./mini``."""
EMBEDDED = {name: folder for family in reversed([*MODELS.values()]) for name, folder in family.embedded.items()}
"""The embedded checkpoints; without a model's name, one is the first model's that has it."""
MINI_FOLDER = EMBEDDED[MINI]
SYNTHETIC_SIZES = tuple(dict.fromkeys(name for family in MODELS.values() for name in family.synthetic))
SYNTHETIC_NAME = re.compile(rf"synthetic:(?P<size>{'|'.join(SYNTHETIC_SIZES)})(@(?P<seed>\d+))?")
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
VALID_CHECKPOINT = (
    f"give {MINI}, a checkpoint's folder, synthetic:{', synthetic:'.join(SYNTHETIC_SIZES)}, or a hub name"
)
MINI_IS_FOR = "it compares implementations on the shipped pages; on other pages it outputs made-up text"
DEFAULT_SEED = 2
"""Seed of the first few whose small models differ most from page to page and do not stop at once."""


def split_model(path_or_name: str | Path) -> tuple[ModelSpec | None, str]:
    """Split ``unlimited_ocr:mini``, a checkpoint's weights as another model of the family, into that and the name."""
    model, _, name = str(path_or_name).partition(":")
    return (MODELS[model], name) if model in MODELS else (None, str(path_or_name))


def synthetic(path_or_name: str) -> tuple[Architecture, int] | None:
    """Return the size and the seed of ``synthetic:<name>``; None for any other name."""
    family, name = split_model(path_or_name)
    found = SYNTHETIC_NAME.fullmatch(name)
    if not found:
        return None
    size = found["size"]
    family = family or next(one for one in MODELS.values() if size in one.synthetic)
    if size not in family.synthetic:
        raise DsocrError(f"{family.title} has no checkpoint synthetic:{size}; choose {', '.join(family.synthetic)}")
    encoder, decoder = family.synthetic[size]
    limit = family.decoding.max_length or decoder.max_position_embeddings
    arch = Architecture(family, encoder, replace(decoder, max_position_embeddings=limit))
    return arch, int(found["seed"] or DEFAULT_SEED)


def architecture_of(path_or_name: str | Path) -> Architecture:
    """Return a checkpoint's dimensions; takes and raises what :func:`~pytest_dsocr.engine.checkpoint.resolve` does."""
    known = synthetic(str(path_or_name))
    return known[0] if known else Architecture.from_folder(folder_of(path_or_name), split_model(path_or_name)[0])


def family_named(path_or_name: str | Path) -> ModelSpec:
    """Return a checkpoint's model. If there is no such checkpoint, return mini's: loading reports the error."""
    try:
        return architecture_of(path_or_name).family
    except DsocrError:
        return architecture_of(MINI).family


def folder_of(path_or_name: str | Path) -> Path:
    """Find the folder of a checkpoint that is not synthetic, without the network.

    Raises:
        MachineError: if there is none with that name.
    """
    family, name = split_model(path_or_name)
    if name in EMBEDDED and not isinstance(path_or_name, Path):
        return _embedded(name, family)
    if synthetic(name):
        raise MachineError(f"{name} is made of random numbers and has no files; give a checkpoint that has a folder")
    folder = Path(name)
    if name and folder.is_dir():
        return folder
    if HUB_NAME.fullmatch(name):
        return _cached_snapshot(name)
    raise MachineError(f"{name!r} is no checkpoint; {VALID_CHECKPOINT}")


def _embedded(name: str, family: ModelSpec | None) -> Path:
    """Return the folder of a model's own checkpoint, or of another model's with the same tensors."""
    folder = family.embedded.get(name, EMBEDDED[name]) if family else EMBEDDED[name]
    if not folder.is_dir():
        raise MachineError(f"this installation of pytest-dsocr is without its checkpoint {name!r}; install it again")
    return folder


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
