"""Which recording, and which recorded facts, are nearest to what none was made of."""

import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from pytest_dsocr.base.reading import Format
from pytest_dsocr.contract.image import resampling
from pytest_dsocr.records.provenance import SHOWN_OF_CHECKPOINT, RecordingKey, versions
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError

SHOWN = 3
"""How many of those that there are a message names."""
WAYS = ("device", "dtype", "attention")
"""How a key's weights are run, each by the word in an option's name."""
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
"""CUDA's compute capability by a word of a GPU's name: GPUs of one capability run much the same kernels."""
Distance = tuple[bool | float, ...]


def distance(wanted: RecordingKey, made: RecordingKey, pixels: tuple[bool, int]) -> Distance:
    """Measure how far a recording is from a wanted key; the least is nearest, and of the wanted key nothing is true.

    Other pixels cost whole pages; ``pixels`` is what :func:`pixels_apart` gives. The dtype decides the limits: of two
    others float32 is nearer, for it is what the weights mean. Then the kind of device, its capability, and whether it
    is another one at all; last the attention.
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
    """Return whether another Pillow made the pixels, and by how many major versions it is from the installed one.

    Args:
        made: ``resampling`` and ``versions`` of what was recorded.
        resampling: how the installed one resizes.
    """
    if made["resampling"] == resampling:
        return False, 0
    return True, abs(_major(made["versions"]) - _major(versions()))


def _major(of: Mapping[str, str]) -> int:
    major = of.get("pillow", "").partition(".")[0]
    return int(major[:9]) if major.isdecimal() else 0


def _capability(device: str) -> float:
    """Return that of the device of a key; 0 of one that is not known."""
    words = device.split("-")
    return next((of for name, of in CAPABILITIES.items() if any(re.fullmatch(name, one) for one in words)), 0.0)


def key_traits(key: RecordingKey) -> dict[str, str]:
    """Return what a key is made of, in words; how its weights are run by the words in the options' names."""
    return {"checkpoint": key.checkpoint_sha256[:SHOWN_OF_CHECKPOINT], **{way: getattr(key, way) for way in WAYS}}


def nearest(wanted: Mapping[str, str], known: Mapping[str, Mapping[str, str]]) -> str:
    """Name what there is that differs least, and in what."""
    if not known:
        return "nor any other"
    differing = {
        name: [f"{field} {fields[field]:.40}" for field in wanted if fields[field] != wanted[field]]
        for name, fields in known.items()
    }
    closest = sorted(differing, key=lambda name: (len(differing[name]), name))[:SHOWN]
    return "but " + "; ".join(f"{name} ({', '.join(differing[name])})" for name in closest)


def options_to_leave_out(wanted: RecordingKey, known: Iterable[RecordingKey], fixed: Collection[str]) -> str:
    """Return the options that asked for what no recording of these weights has; nothing where there is none of them."""
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
    """Read the ``KIND-*.json`` in ``golden`` that was made with a Pillow that resizes like the installed one.

    Where there is none, the one of the nearest version: what does not depend on resizing is the same in all, and of the
    rest see :func:`other_pillow`.

    Raises:
        NotRecordedError: where there is none at all.
        ReferenceFaultError: where one of them is damaged.
    """
    found: list[Any] = [FACTS.read(path) for path in sorted(golden.glob(f"{kind}-*.json"))]
    if not found:
        raise NotRecordedError(f"{golden} holds no {kind}-*.json; record them as its README says")
    nearest: dict[str, Any] = min(found, key=lambda facts: pixels_apart(facts["provenance"], resampling()))
    return nearest


def other_pillow(made: Mapping[str, str]) -> str:
    """Say that pixels were recorded of another Pillow, of the ``versions`` ``made``, than the installed one."""
    pillow = made.get("pillow", "unknown")
    return (
        f"they are Pillow {pillow}'s, and the installed {versions().get('pillow')} resizes this page otherwise; "
        f"install that one (pip install 'pillow=={pillow}')"
    )
