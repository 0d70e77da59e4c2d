"""The bar that every command shows while it works."""

from __future__ import annotations

import sys
from typing import Any

from tqdm import tqdm


def progress_bar(**options: Any) -> tqdm[Any]:
    """Give a bar on stderr that goes when the work is done; disabled where stderr is no terminal."""
    return tqdm(disable=not sys.stderr.isatty(), leave=False, **options)
