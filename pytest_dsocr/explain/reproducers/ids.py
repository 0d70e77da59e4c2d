"""An image's tokens between those of the text."""

from typing import Any

import numpy as np


def rule(data: dict[str, Any]) -> Any:
    """Return rows of image tokens, each with its newline: of the crops as one mosaic, then of the page."""
    whole, crop, columns, rows, newline, image = data["layout"].tolist()  # tokens on a side of the page and of a crop
    count = whole * (whole + newline) + 1  # the last is the separator
    if columns * rows > 1:
        count += rows * crop * (columns * crop + newline)
    return np.concatenate([data["before"], np.full(count, image), data["after"]])
