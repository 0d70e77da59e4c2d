"""CLIP's share, and the projector's behind it."""

from __future__ import annotations

from pytest_dsocr.cost.cost import Cost
from pytest_dsocr.cost.operations import LAYER_NORM, QUICK_GELU, attention, each, moved, product, scores
from pytest_dsocr.cost.sam import COLOURS
from pytest_dsocr.engine.architecture import Architecture, ClipConfig

NAME = "model.vision_model"
PROJECTOR = "model.projector"
UNUSED = f"{NAME}.embeddings.patch_embedding"
"""In the checkpoint, and never read: SAM's features take its place."""


def parameters(config: ClipConfig) -> dict[str, int]:
    """Count the parameters of each module."""
    width, inner = config.width, config.mlp_ratio * config.width
    found = {
        f"{NAME}.embeddings": width + (config.grid**2 + 1) * width,
        UNUSED: COLOURS * config.patch_size**2 * width,
        f"{NAME}.pre_layrnorm": 2 * width,
    }
    for layer in range(config.layers):
        name = f"{NAME}.transformer.layers.{layer}"
        found[f"{name}.layer_norm1"] = 2 * width
        found[f"{name}.self_attn"] = 4 * width**2 + 4 * width
        found[f"{name}.layer_norm2"] = 2 * width
        found[f"{name}.mlp"] = 2 * width * inner + inner + width
    return found


def layers(config: ClipConfig, side: int, views: int, size: int) -> dict[str, Cost]:
    """Give the cost of one call on ``views`` views of ``side`` x ``side`` features, in numbers of ``size`` bytes."""
    positions, width, inner = side**2 + 1, config.width, config.mlp_ratio * config.width  # the class token is one more
    rows = views * positions
    numbers = rows * width
    norm = each(numbers, LAYER_NORM)
    through = moved(size, read=numbers, written=numbers) + each(numbers)  # the residual is added
    attn = (
        product(rows, width, 3 * width, bias=True)
        + attention(rows, positions, width)
        + scores(rows * positions * config.heads)
        + product(rows, width, width, bias=True)
    )
    mlp = product(rows, width, inner, bias=True) + product(rows, inner, width, bias=True)
    found = {
        f"{NAME}.embeddings": each(numbers) + moved(size, read=views * side**2 * width, written=numbers),
        f"{NAME}.pre_layrnorm": norm,
    }
    for layer in range(config.layers):
        name = f"{NAME}.transformer.layers.{layer}"
        found[f"{name}.layer_norm1"] = norm
        found[f"{name}.self_attn"] = through + attn
        found[f"{name}.layer_norm2"] = norm
        found[f"{name}.mlp"] = through + mlp + each(rows * inner, QUICK_GELU)
    weights = parameters(config)
    return {name: cost + moved(size, weights=weights[name]) for name, cost in found.items()}


def projector_parameters(arch: Architecture) -> int:
    """Count the projector's parameters: one layer with its bias."""
    return (arch.projector_input + 1) * arch.decoder.hidden_size


def projector(arch: Architecture, side: int, views: int, size: int) -> dict[str, Cost]:
    """Give the cost of one call on CLIP's and SAM's features side by side, without the class token."""
    rows, inputs, outputs = views * side**2, arch.projector_input, arch.decoder.hidden_size
    cost = product(rows, inputs, outputs, bias=True) + moved(
        size, weights=projector_parameters(arch), read=rows * inputs, written=rows * outputs
    )
    return {PROJECTOR: cost}
