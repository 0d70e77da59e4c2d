"""What the vendor's ``infer`` wrote for outputs of all kinds, as it was recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PAGE_SIZE_PX = (1000, 1400)
"""Of the white page that they were written for."""


@dataclass(frozen=True)
class Written:
    """One output, and the files that came of it; ``geo.jpg``, which the vendor's matplotlib draws, is left out."""

    text: str
    mmd: str
    figures: Mapping[str, tuple[int, int]]
    """Name and size in pixels of each."""
    raised: str | None
    """The vendor's own error, after which it drew no outlines."""


@cache
def written(name: str) -> Written:
    """Give a recorded output."""
    case = _recorded()[name]
    figures = {f"images/{figure}": (size[0], size[1]) for figure, size in case["figures"].items()}
    return Written(case["text"], case["mmd"], figures, case["error"])


def names() -> list[str]:
    """Name every recorded output."""
    return list(_recorded())


@cache
def _recorded() -> dict[str, Any]:
    from pytest_dsocr.reference.goldens import shipped_folder

    path: Path = shipped_folder() / "vendor" / "postprocess.json"
    cases: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return cases
