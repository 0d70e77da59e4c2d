"""What the toy's vision costs."""

from pytest_dsocr.contract.presets import encoded_side
from pytest_dsocr.cost.cost import ITEM_BYTES, Cost, moved, product
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr import cost as encoders

NAME = "model.adapter"


def vision(arch: Architecture, side_px: int, views: int, dtype: str) -> dict[str, dict[str, Cost]]:
    """Return the cost of one call of each stage."""
    width, rows = arch.decoder.hidden_size, views * encoded_side(side_px, arch.encoder.patch_px) ** 2
    through = moved(ITEM_BYTES[dtype], weights=width * (width + 1), read=rows * width, written=rows * width)
    own = product(rows, width, width) + through
    return {**encoders.vision(arch, side_px, views, dtype), "adapter": {NAME: own}}


def parameters(arch: Architecture) -> dict[str, int]:
    """Count the parameters of each module of vision."""
    width = arch.decoder.hidden_size
    return {**encoders.parameters(arch), NAME: width * (width + 1)}
