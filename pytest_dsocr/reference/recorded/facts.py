"""Facts of the vendor's code that belong to no checkpoint: what ``infer`` makes of pages and prompts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from pytest_dsocr.contract.image import resampling
from pytest_dsocr.foundation.reading import Format
from pytest_dsocr.observation.provenance import versions
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError
from pytest_dsocr.reference.recorded.nearest import pixels_apart


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

    Args:
        golden: the folder of recordings.
        kind: ``inputs``.

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
