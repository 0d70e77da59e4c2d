"""Cost of the sketch's vision."""

from typing import cast

from pytest_dsocr.contract.presets import encoded_side
from pytest_dsocr.cost.cost import ITEM_BYTES, Cost, attention, moved, product
from pytest_dsocr.cost.decoder import Way
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.cost import sam_activations, sam_layers, sam_parameters

from .model import QUERIES
from .sizes import QueryEncoder

TOWER, PROJECTOR = "model.qwen2_model", "model.projector"


def vision(arch: Architecture, side_px: int, views: int, dtype: str, way: Way) -> dict[str, dict[str, Cost]]:
    """Return the cost of one call of each stage."""
    sizes, size = cast(QueryEncoder, arch.encoder), ITEM_BYTES[dtype]
    places, width = encoded_side(side_px, sizes.patch_px) ** 2, sizes.tower.width
    rows = 2 * places * views
    block = product(rows, width, 12 * width) + attention(rows, 2 * places, width)
    through = moved(size, read=rows * width, written=rows * width)
    tower = {f"{TOWER}.layers.{k}": block + through for k in range(sizes.tower.layers)}
    projected = product(places * views, width, arch.decoder.hidden_size)
    return {
        "sam": sam_layers(sizes.sam, side_px, views, size),
        "queries": tower,
        "projector": {PROJECTOR: projected + moved(size, read=places * views * width)},
    }


def parameters(arch: Architecture) -> dict[str, int]:
    """Count the parameters of each module of vision."""
    sizes = cast(QueryEncoder, arch.encoder)
    width, layers = sizes.tower.width, sizes.tower.layers
    block = 12 * width**2 + 9 * width + 2 * width
    own = {TOWER: sum(QUERIES) * width + layers * block + width, PROJECTOR: (width + 1) * arch.decoder.hidden_size}
    return {**sam_parameters(sizes.sam), **own}


def activations(arch: Architecture, side_px: int, views: int, dtype: str) -> dict[str, int]:
    """Return the most bytes alive at once in each stage."""
    sizes, size = cast(QueryEncoder, arch.encoder), ITEM_BYTES[dtype]
    places = encoded_side(side_px, sizes.patch_px) ** 2
    return {
        "sam": size * sam_activations(sizes.sam, side_px // sizes.patch_px, views),
        "queries": size * views * 2 * places * sizes.tower.width * 11,
        "projector": size * views * places * (sizes.tower.width + arch.decoder.hidden_size),
    }
