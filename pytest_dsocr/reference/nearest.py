"""Choice of the nearest recording and facts, if none was made under the same conditions."""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from pytest_dsocr.base.reading import Format
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.records.provenance import SHOWN_OF_CHECKPOINT, RecordingKey, versions
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError

SHOWN = 3
"""Number of alternatives that a message names."""
WAYS = ("device", "dtype", "attention")
"""Parts of a key besides the weights, by the word in an option's name."""
CAPABILITIES: Mapping[str, float] = {
    "v100": 7.0,
    "t4": 7.5,
    "a100|a800|a30": 8.0,
    r"a10g?|a40|a6000|30\d0": 8.6,
    r"l4|l40s?|40\d0": 8.9,
    "h100|h200|h800|h20|gh200": 9.0,
    "b200|b300|gb200|gb300": 10.0,
    r"50\d0": 12.0,
}
"""CUDA's compute capability by a word of a GPU's name. GPUs of one capability run almost the same kernels."""
Distance = tuple[bool | float, ...]


def distance(wanted: RecordingKey, made: RecordingKey, pixels: tuple[bool, int]) -> Distance:
    """Return the distance of a recording from a key, by importance; for the wanted key, nothing in it is true.

    Other pixels, by :func:`pixels_apart`, come first: they may exclude whole pages. The dtype sets the limits; of two
    other dtypes float32 is nearer, because it has the weights' exact meaning. The kind of device, its capability and
    its name follow, and the attention is last.
    """
    other_dtype = made.dtype != wanted.dtype
    return (
        *pixels,
        other_dtype,
        other_dtype and made.dtype != "float32",
        (made.device == "cpu") != (wanted.device == "cpu"),
        abs(_capability(made.device) - _capability(wanted.device)),
        made.device != wanted.device,
        made.attention != wanted.attention,
    )


def pixels_apart(made: Mapping[str, Any], resampling: str) -> tuple[bool, int]:
    """Return whether another Pillow made the pixels, and its distance from the installed one in major versions.

    Args:
        made: ``resampling`` and ``versions`` of the recording.
        resampling: fingerprint of the installed Pillow.
    """
    if made["resampling"] == resampling:
        return False, 0
    return True, abs(_major(made["versions"]) - _major(versions()))


def _major(of: Mapping[str, str]) -> int:
    major = of.get("pillow", "").partition(".")[0]
    return int(major[:9]) if major.isdecimal() else 0


def _capability(device: str) -> float:
    """Return the capability of a key's device; 0 if unknown."""
    words = device.split("-")
    return next((of for name, of in CAPABILITIES.items() if any(re.fullmatch(name, one) for one in words)), 0.0)


def key_traits(key: RecordingKey) -> dict[str, str]:
    """Return the parts of a key as texts, by name."""
    return {"checkpoint": key.checkpoint_sha256[:SHOWN_OF_CHECKPOINT], **{way: getattr(key, way) for way in WAYS}}


def nearest(wanted: Mapping[str, str], known: Mapping[str, Mapping[str, str]]) -> str:
    """Name the entries that differ least from the wanted one, and their differences."""
    if not known:
        return "nor any other"
    differing = {
        name: [f"{field} {fields[field]:.40}" for field in wanted if fields[field] != wanted[field]]
        for name, fields in known.items()
    }
    closest = sorted(differing, key=lambda name: (len(differing[name]), len(name), name))[:SHOWN]
    return "but " + "; ".join(f"{name} ({', '.join(differing[name])})" for name in closest)


def options_to_leave_out(wanted: RecordingKey, known: Iterable[RecordingKey], fixed: Collection[str]) -> str:
    """Return the options that no recording of these weights satisfies; empty if there are no recordings of them."""
    differing = [
        [way for way in WAYS if way in fixed and getattr(key, way) != getattr(wanted, way)]
        for key in known
        if key.checkpoint_sha256 == wanted.checkpoint_sha256
    ]
    return " and ".join(f"--dsocr-reference-{way}" for way in min(differing, key=len, default=[]))


class _Made(TypedDict):
    resampling: str
    versions: dict[str, str]


class _Facts(TypedDict):
    provenance: _Made


FACTS = Format(_Facts, "get the file again", ReferenceFaultError)


def read_facts(golden: Path, kind: str) -> dict[str, Any]:
    """Read the ``KIND-*.json`` in ``golden`` that fits the installed Pillow, or the one of the nearest version.

    Facts that do not depend on resizing are the same in all. For the others see :func:`other_pillow`.

    Raises:
        NotRecordedError: if there is none.
        ReferenceFaultError: if one is damaged.
    """
    found: list[Any] = [FACTS.read(path) for path in sorted(golden.glob(f"{kind}-*.json"))]
    if not found:
        raise NotRecordedError(f"{golden} holds no {kind}-*.json; record them as its README says")
    nearest: dict[str, Any] = min(found, key=lambda facts: pixels_apart(facts["provenance"], resampling()))
    return nearest


def other_pillow(made: Mapping[str, str]) -> str:
    """Explain that another Pillow, with the versions ``made``, made the recorded pixels."""
    pillow = made.get("pillow", "unknown")
    return (
        f"Pillow {pillow} made them, and the installed {versions().get('pillow')} resizes this page differently; "
        f"install that version (pip install 'pillow=={pillow}')"
    )
