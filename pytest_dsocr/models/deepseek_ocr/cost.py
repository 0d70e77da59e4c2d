"""The encoders' share of the cost: SAM, CLIP after it, and the projector after both."""

from collections.abc import Iterator, Mapping

from pytest_dsocr.contract.presets import encoded_side, halved
from pytest_dsocr.cost.cost import ITEM_BYTES, Cost, attention, moved, product
from pytest_dsocr.cost.decoder import ENGINE, Way
from pytest_dsocr.layers.sizes import SamConfig
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.sizes import ClipConfig, sizes_of

SAM, CLIP, PROJECTOR = "model.sam_model", "model.vision_model", "model.projector"
UNUSED = f"{CLIP}.embeddings.patch_embedding"
"""In the checkpoint, and never read: SAM's features take its place."""
COLOURS = 3
KERNEL = 9
"""Weights of a 3 x 3 convolution for each pair of channels."""
POSITION_TABLES = 2
"""Relative positions of rows, and of columns."""


def sam_parameters(config: SamConfig) -> dict[str, int]:
    """Count the parameters of each module."""
    width, neck, inner = config.width, config.neck_channels, config.mlp_ratio * config.width
    middle, last = config.downsample_channels
    found = {"patch_embed.proj": COLOURS * config.patch_size**2 * width + width, "pos_embed": config.grid**2 * width}
    for layer in range(config.layers):
        tables = POSITION_TABLES * (2 * _window(config, layer, config.grid) - 1) * (width // config.heads)
        found[f"blocks.{layer}.norm1"] = 2 * width
        found[f"blocks.{layer}.attn"] = 4 * width**2 + 4 * width + tables
        found[f"blocks.{layer}.norm2"] = 2 * width
        found[f"blocks.{layer}.mlp"] = 2 * width * inner + inner + width
    found |= {"neck.0": width * neck, "neck.1": 2 * neck, "neck.2": KERNEL * neck**2, "neck.3": 2 * neck}
    found |= {"net_2": KERNEL * neck * middle, "net_3": KERNEL * middle * last}
    return {f"{SAM}.{name}": count for name, count in found.items()}


def sam_layers(config: SamConfig, view_px: int, views: int, size: int) -> dict[str, Cost]:
    """Return the cost of one call on ``views`` views of ``view_px``, in numbers of ``size`` bytes."""
    side, pixels = view_px // config.patch_size, COLOURS * config.patch_size**2
    patches, read = views * side**2, views * COLOURS * view_px**2
    found = {
        "patch_embed.proj": product(patches, pixels, config.width)
        + moved(size, read=read, written=patches * config.width),
        **dict(_blocks(config, side, views, size)),
        **dict(_neck(config, side, views, size)),
    }
    return with_weights({f"{SAM}.{name}": cost for name, cost in found.items()}, sam_parameters(config), size)


def with_weights(costs: Mapping[str, Cost], weights: Mapping[str, int], size: int) -> dict[str, Cost]:
    """Add the weights that each module reads; one that is not in ``costs``, such as a norm, reads them alone."""
    read = {name: count for name, count in weights.items() if name != UNUSED}
    return {name: costs.get(name, Cost()) + moved(size, weights=count) for name, count in read.items()}


def _blocks(config: SamConfig, side: int, views: int, size: int) -> Iterator[tuple[str, Cost]]:
    patches, width, inner = views * side**2, config.width, config.mlp_ratio * config.width
    numbers = patches * width
    through = moved(size, read=numbers, written=numbers)
    for layer in range(config.layers):
        yield f"blocks.{layer}.attn", through + _sam_attention(config, layer, side, views)
        yield f"blocks.{layer}.mlp", through + _perceptron(patches, width, inner)


def _perceptron(rows: int, width: int, inner: int) -> Cost:
    return product(rows, width, inner) + product(rows, inner, width)


def _sam_attention(config: SamConfig, layer: int, side: int, views: int) -> Cost:
    """In windows, which zeros are added for at the lower and the right edge, or over the whole view."""
    width = config.width
    window = _window(config, layer, side)
    along = -(-side // window)
    patches = views * along**2 * window**2
    return (
        product(patches, width, 4 * width)  # queries, keys, values and output
        + product(patches, width, POSITION_TABLES * window)
        + attention(patches, window**2, width)
    )


def _neck(config: SamConfig, side: int, views: int, size: int) -> Iterator[tuple[str, Cost]]:
    neck = config.neck_channels
    middle, last = config.downsample_channels
    half, quarter = halved(side), halved(halved(side))

    def convolution(inputs: int, outputs: int, before: int, after: int, kernel: int = KERNEL) -> Cost:
        read, written = views * before**2 * inputs, views * after**2 * outputs
        return product(views * after**2, kernel * inputs, outputs) + moved(size, read=read, written=written)

    yield "neck.0", convolution(config.width, neck, side, side, kernel=1)
    yield "neck.2", convolution(neck, neck, side, side)
    yield "net_2", convolution(neck, middle, side, half)
    yield "net_3", convolution(middle, last, half, quarter)


def _window(config: SamConfig, layer: int, side: int) -> int:
    """Return the side of what a layer attends over: a window, or all of the view's ``side``."""
    return side if layer in config.global_attn_indexes else config.window_size


def clip_parameters(config: ClipConfig) -> dict[str, int]:
    """Count the parameters of each module."""
    width, inner = config.width, config.mlp_ratio * config.width
    found = {
        f"{CLIP}.embeddings": width + (config.grid**2 + 1) * width,
        UNUSED: COLOURS * config.patch_size**2 * width,
        f"{CLIP}.pre_layrnorm": 2 * width,
    }
    for layer in range(config.layers):
        name = f"{CLIP}.transformer.layers.{layer}"
        found[f"{name}.layer_norm1"] = 2 * width
        found[f"{name}.self_attn"] = 4 * width**2 + 4 * width
        found[f"{name}.layer_norm2"] = 2 * width
        found[f"{name}.mlp"] = 2 * width * inner + inner + width
    return found


def clip_layers(config: ClipConfig, side: int, views: int, size: int) -> dict[str, Cost]:
    """Return the cost of one call on ``views`` views of ``side`` x ``side`` features, in numbers of ``size`` bytes."""
    positions, width, inner = side**2 + 1, config.width, config.mlp_ratio * config.width  # the class token is one more
    rows = views * positions
    numbers = rows * width
    through = moved(size, read=numbers, written=numbers)
    attn = product(rows, width, 4 * width) + attention(rows, positions, width)  # queries, keys, values and output
    found = {f"{CLIP}.embeddings": moved(size, read=views * side**2 * width, written=numbers)}
    for layer in range(config.layers):
        name = f"{CLIP}.transformer.layers.{layer}"
        found[f"{name}.self_attn"] = through + attn
        found[f"{name}.mlp"] = through + _perceptron(rows, width, inner)
    return with_weights(found, clip_parameters(config), size)


def projector_parameters(arch: Architecture) -> int:
    """Count the projector's parameters: one layer with its bias."""
    return (arch.encoder.projector_input + 1) * arch.decoder.hidden_size


def projector(arch: Architecture, side: int, views: int, size: int) -> dict[str, Cost]:
    """Return the cost of one call on CLIP's and SAM's features side by side, without the class token."""
    rows, inputs, outputs = views * side**2, arch.encoder.projector_input, arch.decoder.hidden_size
    cost = product(rows, inputs, outputs) + moved(
        size, weights=projector_parameters(arch), read=rows * inputs, written=rows * outputs
    )
    return {PROJECTOR: cost}


def vision(arch: Architecture, side_px: int, views: int, dtype: str, way: Way = ENGINE) -> dict[str, dict[str, Cost]]:
    """Return the cost of one call of SAM, of CLIP and of the projector on ``views`` views of ``side_px``.

    ``way`` is for encoders with rotary positions, and changes nothing here.
    """
    sizes = sizes_of(arch)
    size, side = ITEM_BYTES[dtype], encoded_side(side_px, sizes.sam.patch_size)
    return {
        "sam": sam_layers(sizes.sam, side_px, views, size),
        "clip": clip_layers(sizes.clip, side, views, size),
        "projector": projector(arch, side, views, size),
    }


def parameters(arch: Architecture) -> dict[str, int]:
    """Count the parameters of each module of vision."""
    sizes, own = sizes_of(arch), {PROJECTOR: projector_parameters(arch)}
    return {**sam_parameters(sizes.sam), **clip_parameters(sizes.clip), **own}


def activations(arch: Architecture, side_px: int, views: int, dtype: str) -> dict[str, int]:
    """Return the peak bytes of activations in one call of SAM, of CLIP and of the projector."""
    sizes = sizes_of(arch)
    size, rows = ITEM_BYTES[dtype], views * (encoded_side(side_px, sizes.sam.patch_size) ** 2 + 1)
    return {
        "sam": size * sam_activations(sizes.sam, side_px // sizes.sam.patch_size, views),
        "clip": size * rows * sizes.clip.width * (3 + 4 * sizes.clip.mlp_ratio),  # attention takes less
        "projector": size * rows * (sizes.projector_input + arch.decoder.hidden_size),
    }


def sam_activations(config: SamConfig, side: int, views: int) -> int:
    """Count the input, norm, windows, queries with keys and values, the bias being made, and the output twice."""
    peaks = [views * side**2 * config.width * (3 + 2 * config.mlp_ratio)]
    for layer in range(config.layers):
        window = _window(config, layer, side)
        patches = views * (-(-side // window) * window) ** 2
        peaks.append(2 * patches * config.heads * (window**2 + window) + 8 * patches * config.width)
    return max(peaks)
