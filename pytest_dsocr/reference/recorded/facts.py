"""Facts of the vendor's code that belong to no checkpoint: what ``infer`` makes of pages and prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pytest_dsocr.reference.protocol import NotRecordedError, ReferenceFaultError


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

    found = {path: _read(path) for path in sorted(golden.glob(f"{kind}-*.json"))}
    by_resampling = {facts["provenance"]["resampling"]: facts for facts in found.values()}
    if resampling() not in by_resampling:
        known = ", ".join(path.name for path in found) or "no such file"
        pillows = (facts["provenance"]["versions"]["pillow"] for facts in found.values())
        install = " or ".join(f"pip install 'pillow=={version}'" for version in pillows) or "install a Pillow of them"
        raise NotRecordedError(
            f"{golden} holds no {kind} recorded with a Pillow that resizes like the installed {installed}, "
            f"only {known}; {install}, or record them as its README says"
        )
    return by_resampling[resampling()]


def _read(path: Path) -> dict[str, Any]:
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        facts["provenance"]["resampling"], facts["provenance"]["versions"]["pillow"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ReferenceFaultError(f"{path} holds no recorded facts ({error!r}); get the file again") from error
    return facts
