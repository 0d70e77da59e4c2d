"""Facts of the vendor's code that belong to no checkpoint: what ``infer`` makes of pages and prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict

from pytest_dsocr.foundation.reading import Format
from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError


class _Made(TypedDict):
    resampling: str
    versions: dict[str, str]


class _Facts(TypedDict):
    provenance: _Made


FACTS = Format(_Facts, "get the file again", ReferenceFaultError)


def read_facts(golden: Path, kind: str) -> dict[str, Any]:
    """Read the ``KIND-*.json`` in ``golden`` that was made with a Pillow that resizes like the installed one.

    The vendor's pixels are Pillow's, so that no recording can be compared with another Pillow's bit for bit.

    Args:
        golden: the folder of recordings.
        kind: ``inputs``.

    Raises:
        NotRecordedError: where there is none.
        ReferenceFaultError: where one of them is damaged.
    """
    from PIL import __version__ as installed

    from pytest_dsocr.contract.resampling import resampling

    found: dict[Path, Any] = {path: FACTS.read(path) for path in sorted(golden.glob(f"{kind}-*.json"))}
    by_resampling: dict[str, dict[str, Any]] = {facts["provenance"]["resampling"]: facts for facts in found.values()}
    if resampling() not in by_resampling:
        known = ", ".join(path.name for path in found) or "no such file"
        pillows = (facts["provenance"]["versions"].get("pillow") for facts in found.values())
        install = " or ".join(f"pip install 'pillow=={version}'" for version in pillows) or "install a Pillow of them"
        raise NotRecordedError(
            f"{golden} holds no {kind} recorded with a Pillow that resizes like the installed {installed}, "
            f"only {known}; {install}, or record them as its README says"
        )
    return by_resampling[resampling()]
