"""Names of checkpoints, the synthetic sizes among them, and where their files are on this machine; imports no torch."""

import re
from dataclasses import replace
from pathlib import Path

from pytest_dsocr.engine.architecture import Architecture, ClipConfig, DecoderConfig, SamConfig
from pytest_dsocr.families import DEFAULT, FAMILIES
from pytest_dsocr.families.family import Family
from pytest_dsocr.foundation.errors import DsocrError, MachineError

MINI = next(iter(DEFAULT.embedded))
"""The embedded checkpoint's name; a folder that is called so as well is ``./mini``."""
VENDOR_VOCAB_SIZE = DEFAULT.vocab_size
EMBEDDED = {name: folder for family in FAMILIES.values() for name, folder in family.embedded.items()}
MINI_FOLDER = EMBEDDED[MINI]
SYNTHETIC_SIZES = ("tiny", "small", "published", "full")
SYNTHETIC_NAME = re.compile(rf"synthetic:(?P<size>{'|'.join(SYNTHETIC_SIZES)})(@(?P<seed>\d+))?")
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+")
VALID_CHECKPOINT = (
    f"give {MINI}, a checkpoint's folder, synthetic:{', synthetic:'.join(SYNTHETIC_SIZES)}, or a hub name"
)
MINI_IS_FOR = (
    "it is for comparing implementations on the shipped pages, not for reading: of other pages it invents text"
)


_SMALL = Architecture(
    SamConfig(
        width=64,
        layers=4,
        heads=4,
        global_attn_indexes=(1, 3),
        neck_channels=32,
        downsample_channels=(48, 64),
    ),
    ClipConfig(width=64, layers=2, heads=4),
    DecoderConfig(
        vocab_size=VENDOR_VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        max_position_embeddings=8192,
    ),
)

SYNTHETIC = {
    "tiny": replace(_SMALL, decoder=replace(_SMALL.decoder, vocab_size=512)),
    "small": _SMALL,
    "published": Architecture(
        decoder=DecoderConfig(
            vocab_size=512, num_hidden_layers=2, n_routed_experts=8, num_experts_per_tok=2, max_position_embeddings=8192
        )
    ),
    "full": replace(Architecture(), decoder=replace(DecoderConfig(), max_position_embeddings=8192)),
}
"""Architectures by name: ``small`` is ``tiny`` with the vendor's vocabulary, ``full`` is the vendor's model, and
``published`` has its vision and its widths, which ports have in their code, but few layers, experts and tokens."""

DEFAULT_SEED = 2
"""Of the first few seeds the one whose small models differ most from page to page and do not stop at once."""


def split_model(path_or_name: str | Path) -> tuple[Family | None, str]:
    """Split ``unlimited_ocr:mini``, a checkpoint's weights as another model of the family, into that and the name."""
    model, _, name = str(path_or_name).partition(":")
    return (FAMILIES[model], name) if model in FAMILIES else (None, str(path_or_name))


def synthetic(path_or_name: str) -> tuple[Architecture, int] | None:
    """Return the size and the seed that ``synthetic:<name>`` stands for; None for any other name."""
    family, name = split_model(path_or_name)
    found = SYNTHETIC_NAME.fullmatch(name)
    if not found:
        return None
    arch = SYNTHETIC[found["size"]]
    if family:
        limit = family.decoding.max_length or arch.decoder.max_position_embeddings
        arch = replace(arch, family=family, decoder=replace(arch.decoder, max_position_embeddings=limit))
    return arch, int(found["seed"] or DEFAULT_SEED)


def architecture_of(path_or_name: str | Path) -> Architecture:
    """Return a checkpoint's dimensions; takes and raises what :func:`~pytest_dsocr.engine.checkpoint.resolve` does."""
    known = synthetic(str(path_or_name))
    return known[0] if known else Architecture.from_folder(folder_of(path_or_name), split_model(path_or_name)[0])


def family_named(path_or_name: str | Path) -> Family:
    """Return a checkpoint's family, or the first where there is no such checkpoint: loading it reports that."""
    try:
        return architecture_of(path_or_name).family
    except DsocrError:
        return DEFAULT


def folder_of(path_or_name: str | Path) -> Path:
    """Find the folder of a checkpoint that is not synthetic; the network is never asked.

    Raises:
        MachineError: where there is none of that name.
    """
    _, name = split_model(path_or_name)
    if name in EMBEDDED and not isinstance(path_or_name, Path):
        return _embedded(name)
    if synthetic(name):
        raise MachineError(f"{name} is made of random numbers and has no files; give a checkpoint that has a folder")
    folder = Path(name)
    if name and folder.is_dir():
        return folder
    if HUB_NAME.fullmatch(name):
        return _cached_snapshot(name)
    raise MachineError(f"{name!r} is no checkpoint; {VALID_CHECKPOINT}")


def _embedded(name: str) -> Path:
    if not EMBEDDED[name].is_dir():
        raise MachineError(f"this installation of pytest-dsocr is without its checkpoint {name!r}; install it again")
    return EMBEDDED[name]


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
