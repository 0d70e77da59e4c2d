"""A page without the margins around its content, by the rules that programs cut them by."""

from collections.abc import Iterator

import numpy as np
from PIL import Image

DARK, WHITE = 200, 250
"""Levels below which a pixel is content, on a stretched grey scale and on the page's own."""


def without_margins(page: Image.Image) -> Iterator[tuple[str, Image.Image]]:
    """Yield the page without margins, with the words for what was cut off; nothing where no margin is cut."""
    grey, levels = np.asarray(page.convert("L"), dtype=np.float32), np.asarray(page)
    low, high = float(grey.min()), float(grey.max())
    masks = {
        f"stretched levels from {DARK} on": (grey - low) / max(high - low, 1.0) * 255 < DARK,
        f"levels from {WHITE} on": grey < WHITE,
        "the corner's colour": (levels != levels[0, 0]).any(axis=-1),
    }
    for words, content in masks.items():
        rows, columns = np.flatnonzero(content.any(axis=1)), np.flatnonzero(content.any(axis=0))
        if not len(rows):
            continue
        box = int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1
        if box != (0, 0, *page.size):
            cut = box[0], box[1], page.width - box[2], page.height - box[3]
            sides = ", ".join(f"{size:,}" for size in cut)
            text = f"the page's margins ({words}) are cut off: {sides} px at the left, top, right and bottom"
            yield text, page.crop(box)
