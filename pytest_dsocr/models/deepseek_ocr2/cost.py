"""The encoder's share of the cost: SAM, the Qwen2 tower after it, and the projector after that."""

from pytest_dsocr.contract.presets import encoded_side
from pytest_dsocr.cost.cost import ITEM_BYTES, Cost, attention, moved, product
from pytest_dsocr.cost.decoder import ENGINE, Way
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.cost import (
    PROJECTOR,
    projector,
    projector_parameters,
    sam_activations,
    sam_layers,
    sam_parameters,
    with_weights,
)
from pytest_dsocr.models.deepseek_ocr2 import TOWER
from pytest_dsocr.models.deepseek_ocr2.sizes import QUERIES, TowerConfig, sizes_of

LAYERS = f"{TOWER}.model.model"
MATRICES = 3
"""Number of matrices of a gated perceptron."""


def tower_parameters(config: TowerConfig) -> dict[str, int]:
    """Count the parameters of each module."""
    width, keys = config.dim, config.key_value_heads * config.head_dim
    found = {f"{TOWER}.{name}": count * width for count, name in QUERIES.items()}
    for layer in range(config.layers):
        name = f"{LAYERS}.layers.{layer}"
        found[f"{name}.input_layernorm"] = width
        found[f"{name}.self_attn"] = 2 * width * (width + keys) + width + 2 * keys
        found[f"{name}.post_attention_layernorm"] = width
        found[f"{name}.mlp"] = MATRICES * width * config.intermediate_size
    return found | {f"{LAYERS}.norm": width}


def tower_layers(config: TowerConfig, tokens: int, views: int, size: int, way: Way) -> dict[str, Cost]:
    """Return the cost of one call on ``views`` views of ``tokens`` features, in numbers of ``size`` bytes.

    Attention counts all pairs of rows, which a mask does not skip.
    """
    width, keys, rows = config.dim, config.key_value_heads * config.head_dim, views * 2 * tokens
    through = moved(size, read=rows * width, written=rows * width)
    attn = product(rows, width, 2 * (width + keys)) + attention(rows, 2 * tokens, width)
    found = {f"{LAYERS}.rotary_emb": product(2 * tokens, 1, config.head_dim // 2)} if way.angle_products else {}
    for layer in range(config.layers):
        name = f"{LAYERS}.layers.{layer}"
        found[f"{name}.self_attn"] = through + attn
        found[f"{name}.mlp"] = through + product(rows, width, MATRICES * config.intermediate_size)
    unread = {f"{TOWER}.{name}" for count, name in QUERIES.items() if count != tokens}
    weights = {name: 0 if name in unread else count for name, count in tower_parameters(config).items()}
    return {**found, **with_weights(found, weights, size)}


def vision(arch: Architecture, side_px: int, views: int, dtype: str, way: Way = ENGINE) -> dict[str, dict[str, Cost]]:
    """Return the cost of one call of SAM, of the tower and of the projector on ``views`` views of ``side_px``."""
    sizes = sizes_of(arch)
    size, side = ITEM_BYTES[dtype], encoded_side(side_px, sizes.patch_px)
    return {
        "sam": sam_layers(sizes.sam, side_px, views, size),
        "qwen2": tower_layers(sizes.tower, side**2, views, size, way),
        "projector": projector(arch, side, views, size),
    }


def parameters(arch: Architecture) -> dict[str, int]:
    """Count the parameters of each module of vision."""
    sizes = sizes_of(arch)
    return {**sam_parameters(sizes.sam), **tower_parameters(sizes.tower), PROJECTOR: projector_parameters(arch)}


def activations(arch: Architecture, side_px: int, views: int, dtype: str) -> dict[str, int]:
    """Return the peak bytes of activations in one call of SAM, of the tower and of the projector."""
    sizes, size = sizes_of(arch), ITEM_BYTES[dtype]
    tokens, tower = encoded_side(side_px, sizes.patch_px) ** 2, sizes.tower
    rows, float32 = 2 * tokens * views, 4
    mask = 2 * views * tower.heads * (2 * tokens) ** 2  # a kernel may write it for each head, and pad it
    of_layer = rows * max(tower.dim * 8 * size, 4 * tower.intermediate_size * size, tower.dim * 2 * (size + float32))
    return {
        "sam": size * sam_activations(sizes.sam, side_px // sizes.patch_px, views),
        "qwen2": size * (rows * tower.dim + mask) + of_layer,
        "projector": size * views * tokens * (sizes.projector_input + arch.decoder.hidden_size),
    }
