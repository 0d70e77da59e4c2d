"""What the toy's vision costs."""

from pytest_dsocr.cost import encoders
from pytest_dsocr.cost.cost import ITEM_BYTES, Cost, moved, product
from pytest_dsocr.engine.architecture import Architecture

NAME = "model.adapter"


def vision(arch: Architecture, side_px: int, views: int, dtype: str) -> dict[str, dict[str, Cost]]:
    """Return the cost of one call of each stage."""
    width, rows = arch.decoder.hidden_size, views * encoders.features_side(arch.sam, side_px) ** 2
    through = moved(ITEM_BYTES[dtype], weights=width * (width + 1), read=rows * width, written=rows * width)
    own = product(rows, width, width) + through
    return {**encoders.vision(arch, side_px, views, dtype), "adapter": {NAME: own}}


def activations(arch: Architecture, side_px: int, views: int, dtype: str) -> dict[str, int]:
    """Return the most bytes alive at once in each stage."""
    rows = views * encoders.features_side(arch.sam, side_px) ** 2
    own = 2 * rows * arch.decoder.hidden_size * ITEM_BYTES[dtype]
    return {**encoders.activations(arch, side_px, views, dtype), "adapter": own}


def parameters(arch: Architecture) -> dict[str, int]:
    """Count the parameters of each module of vision."""
    width = arch.decoder.hidden_size
    return {**encoders.parameters(arch), NAME: width * (width + 1)}
