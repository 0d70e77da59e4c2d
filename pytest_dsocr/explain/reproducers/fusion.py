"""The layout of an image's features."""

from typing import Any

import numpy as np


def rule(data: dict[str, Any]) -> Any:
    """Return the crops' tokens as one mosaic, then the page's, each row with the newline, then the separator."""
    columns, rows = data["grid"].tolist()
    page, newline = data["page"], data["newline"]
    side, channels = round(len(page) ** 0.5), page.shape[1]
    tokens = [page.reshape(side, side, channels)]
    if columns * rows > 1:
        crops = data["crops"]
        side = round(crops.shape[1] ** 0.5)
        tiles = crops.reshape(rows, columns, side, side, channels).transpose(0, 2, 1, 3, 4)
        tokens.insert(0, tiles.reshape(rows * side, columns * side, channels))
    ended = [np.concatenate([one, np.tile(newline, (len(one), 1, 1))], axis=1).reshape(-1, channels) for one in tokens]
    return np.concatenate([*ended, data["separator"][None]])
