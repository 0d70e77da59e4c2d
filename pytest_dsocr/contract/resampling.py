"""How the installed Pillow resizes, as a fingerprint: two sides' pixels can be equal only where it is the same."""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
from PIL import Image

SHAPES = ((200, 90), (90, 200))  # a tall and a wide probe, [H, W]


@cache
def resampling() -> str:
    """Give a fingerprint of what ``resize`` makes of a tall and of a wide page.

    Pillow 13.0 resizes tall pages by other intermediate roundings than the versions before, up to 30 levels apart.
    """
    resized = (_probe(*shape).resize((30, 20)).tobytes() for shape in SHAPES)
    return hashlib.sha256(b"".join(resized)).hexdigest()[:16]


def _probe(height: int, width: int) -> Image.Image:
    """Draw noise by integer arithmetic, the same on every machine."""
    values = np.arange(height * width * 3, dtype=np.uint32) * np.uint32(0x9E3779B1)
    values = (values ^ (values >> np.uint32(15))) * np.uint32(0x2C1B3C6D)
    return Image.fromarray((values >> np.uint32(24)).astype(np.uint8).reshape(height, width, 3))
