"""Provenance of an observation: files, versions, device, weights and overrides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from pytest_dsocr.base.process import versions_of
from pytest_dsocr.models.spec import ModelSpec

OF_NO_CONSEQUENCE = ("checkpoint", "date", "command")
"""Fields that may differ between equal observations; a checkpoint counts by its content, not by its name."""
PACKAGES = ("torch", "transformers", "tokenizers", "pillow", "numpy", "matplotlib", "flash-attn", "torchvision")
SHA256_CHARACTERS, SHOWN_OF_HASH, SHOWN_OF_CHECKPOINT = 64, 16, 12
ENGINE_STANDS_IN = "all of the vendor's code: the engine, equal to it where recorded"
"""Override of an observation that the engine made instead of the vendor's code."""
OF_VENDOR = ("eager", "flash_attention_2")
DTYPES_OF_VENDOR = ("float32", "bfloat16")
"""The attentions and dtypes that the vendor's code has."""


@dataclass(frozen=True)
class RecordingKey:
    """Conditions under which two sides can be compared bit for bit: the weights' content, and how they are run."""

    checkpoint: str = field(compare=False)
    """The weights' name, for people: a copy of another name is the same checkpoint."""
    device: str
    """``cpu``, or a GPU's name such as ``nvidia-h200``."""
    dtype: str
    attention: str
    checkpoint_sha256: str

    def __str__(self) -> str:
        return f"{slug(self.checkpoint)}/{self.way}"

    @property
    def way(self) -> str:
        """Name of a folder that states how the weights are run."""
        return f"{self.device}-{self.dtype}-{self.attention}"

    @property
    def in_words(self) -> str:
        """The key in a sentence: by the checkpoint's name, and by its content."""
        return f"{self} (checkpoint {self.checkpoint_sha256[:SHOWN_OF_CHECKPOINT]})"


@dataclass(frozen=True)
class Provenance:
    """Everything that a reference's observation depends on; its fields are JSON values."""

    checkpoint: str
    checkpoint_sha256: str
    vendor_sha256: Mapping[str, str]
    """SHA-256 of each of the vendor's files that was imported; empty for the engine."""
    device: str
    dtype: str
    attention: str
    resampling: str
    """See :func:`pytest_dsocr.contract.image.resampling`."""
    versions: Mapping[str, str]
    overrides: tuple[str, ...]
    """Replacements of what the vendor's code hard-codes."""
    date: str
    command: str

    @property
    def key(self) -> RecordingKey:
        """Key under which recordings are looked up."""
        return RecordingKey(self.checkpoint, self.device, self.dtype, self.attention, self.checkpoint_sha256)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Provenance:
        """Read what :meth:`to_json` returned; raise ``KeyError`` where something is missing."""
        return cls(**{**{f.name: value[f.name] for f in fields(cls)}, "overrides": tuple(value["overrides"])})

    def with_override(self, override: str) -> Provenance:
        """Return the same with one more override, such as that of a single case."""
        return replace(self, overrides=(*self.overrides, override))

    def with_ceiling(self, max_new_tokens: int, family: ModelSpec) -> Provenance:
        """Return the same for a case with this limit of tokens; any but the vendor's own is an override."""
        usual = family.decoding.max_new_tokens
        if max_new_tokens == usual:
            return self
        return self.with_override(f"generate: max_new_tokens {max_new_tokens} in place of {usual}")

    def differences(self, other: Provenance) -> list[str]:
        """Say in which respects of consequence the two were made differently, one line each."""
        actual, expected = _flat(self.to_json()), _flat(other.to_json())
        return [
            f"{name}: {_short(actual.get(name))} and {_short(expected.get(name))}"
            for name in dict.fromkeys([*actual, *expected])
            if name not in OF_NO_CONSEQUENCE and actual.get(name) != expected.get(name)
        ]


def is_by_engine(provenance: Provenance | None) -> bool:
    """Return whether the engine, not the vendor's code, made an observation with this provenance."""
    return provenance is not None and ENGINE_STANDS_IN in provenance.overrides


def _short(value: Any) -> str:
    """Return a hash by its beginning, anything else whole."""
    text = str(value)
    return text[:SHOWN_OF_HASH] if len(text) == SHA256_CHARACTERS else text


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of mappings inside by names such as ``versions.torch``."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found


def versions() -> dict[str, str]:
    """Return the versions that the reference's numbers depend on."""
    return versions_of(PACKAGES)


def device_class(torch_device: str) -> str:
    """Return ``cpu``, or the name of the GPU that torch calls ``torch_device``, such as ``nvidia-h200``."""
    if torch_device.startswith("cuda"):
        import torch

        return slug(torch.cuda.get_device_name(torch_device).lower())
    return "cpu"


def slug(name: str) -> str:
    """Turn a name into one that any file system takes."""
    words = "".join(c if c.isalnum() or c in "._" else " " for c in name[:80]).split()
    return "-".join(words).lstrip(".") or "unnamed"
