"""What commands here share: lines to the terminal as they come, results as JSON, errors as one sentence."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pytest_dsocr.foundation.errors import DsocrError


def tell(lines: Iterator[str]) -> int:
    """Write each line when it is there; gives the exit status: 0, or 2 where bad input ended them."""
    try:
        for line in lines:
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    except DsocrError as error:
        sys.stderr.write(f"dsocr: {error}\n")
        return 2
    return 0


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write ``value``, and make the folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
