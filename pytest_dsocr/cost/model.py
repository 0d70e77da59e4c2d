"""What a page costs, stage by stage and module by module, and the memory that its activations take at most."""

from pytest_dsocr.contract.presets import crop_count
from pytest_dsocr.cost import decoder, encoders
from pytest_dsocr.cost.cost import ITEM_BYTES, Cost, StageCost, moved, total
from pytest_dsocr.cost.decoder import SESSION, Call, Way
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.architecture import Architecture, DecoderConfig
from pytest_dsocr.families.family import load

NEWLINE = "model.image_newline"
SEPARATOR = "model.view_seperator"
WIDE_BYTES = ITEM_BYTES["float32"]
"""Of numbers that are computed in float32, whatever the dtype."""
OWN = (NEWLINE, SEPARATOR)
"""Parameters that are vectors of their own."""

Layers = dict[str, Cost]


def stages_of(arch: Architecture, work: Workload, *, way: Way = SESSION) -> dict[str, StageCost]:
    """Return the cost of each stage of ``work``: all its views, all its decode steps.

    Weights are read once in each call: of an encoder for the crops together and for the whole page, of the prefill, of
    each step.

    Args:
        arch: the model's dimensions.
        work: the page.
        way: what right implementations do differently; the session's if left out.
    """
    vision = load(arch.family.cost).vision
    found = _sum([vision(arch, side_px, views, work.dtype) for side_px, views in calls(work)])
    found["vision_fusion"] = _fusion(arch, work)
    found["prefill"] = decoder.layers(arch.decoder, Call(range(work.prompt_tokens), ITEM_BYTES[work.dtype], way))
    found["decode"] = _decode(arch, work, way)
    return {stage: StageCost(stage, layers) for stage, layers in found.items()}


def calls(work: Workload) -> list[tuple[int, int]]:
    """Return the calls of the encoders for one page: the side of the views in px, and how many there are."""
    crops = crop_count(work.grid)
    return [*([(work.preset.tiling.crop_px, crops)] if crops else []), (work.preset.view_size, 1)]


def decode_step(arch: Architecture, work: Workload, length: int, *, way: Way = SESSION) -> StageCost:
    """Return the cost of one step after which the cache holds ``length`` positions, with the new one."""
    call = Call(range(length - 1, length), ITEM_BYTES[work.dtype], way)
    return StageCost("decode", decoder.layers(arch.decoder, call))


def parameters(arch: Architecture) -> dict[str, int]:
    """Count the parameters of each module in the checkpoint."""
    return {
        **load(arch.family.cost).parameters(arch),
        **dict.fromkeys(OWN, arch.decoder.hidden_size),
        **decoder.parameters(arch.decoder),
    }


def cache_bytes(arch: Architecture, work: Workload) -> int:
    """Return the bytes of keys and values when the last token has been written."""
    positions = arch.family.cache.length(work.prompt_tokens, work.decode_steps)
    return decoder.cache_bytes(arch.decoder, positions, ITEM_BYTES[work.dtype])


def _fusion(arch: Architecture, work: Workload) -> Layers:
    size, width = ITEM_BYTES[work.dtype], arch.decoder.hidden_size
    features = sum(views * encoders.features_side(arch.sam, side_px) ** 2 for side_px, views in calls(work))
    through = moved(size, read=features * width, written=work.image_tokens * width)
    through += moved(size, read=work.image_tokens * width)  # scattered into the prompt's embeddings
    return {NEWLINE: through + moved(size, weights=width), SEPARATOR: moved(size, weights=width)}


def _decode(arch: Architecture, work: Workload, way: Way) -> Layers:
    """Sum the steps, each of which costs as much more than the one before, until the cache is full."""
    if not (growing := min(work.decode_steps, arch.family.cache.ring or work.decode_steps)):
        return {}
    first, last = (decode_step(arch, work, work.prompt_tokens + step, way=way).layers for step in (1, growing))
    full = work.decode_steps - growing
    return {name: (first[name] + last[name]).scaled(growing, 2) + last[name].scaled(full) for name in first}


def _sum(parts: list[dict[str, Layers]]) -> dict[str, Layers]:
    """Add calls of the same stages up, module by module."""
    return {stage: {name: total(part[stage][name] for part in parts) for name in parts[0][stage]} for stage in parts[0]}


def activation_peaks(arch: Architecture, work: Workload) -> dict[str, int]:
    """Return the most bytes of activations alive at once in the encoders' stages, ``prefill`` and ``decode``.

    A bound for code that is written as the session is: each operator's result is stored; attention of the towers is
    fused, but for its bias, which a kernel may copy to a size that it likes. Two fifths of it are used at least.
    """
    size, of_views = ITEM_BYTES[work.dtype], load(arch.family.cost).activations
    each = [of_views(arch, side_px, views, size) for side_px, views in calls(work)]
    return {
        **{stage: max(one[stage] for one in each) for stage in each[0]},
        "prefill": _prefill_bytes(arch.decoder, work, size),
        "decode": _decode_bytes(arch, work, size),
    }


def _prefill_bytes(config: DecoderConfig, work: Workload, size: int) -> int:
    tokens, width = work.prompt_tokens, config.hidden_size
    around = tokens * width * (4 * size + 3 * WIDE_BYTES)
    pairs = tokens**2 * config.num_attention_heads if work.attention == "eager" else 0
    attention = pairs * (2 * size + 2 * WIDE_BYTES) + 8 * tokens * width * size
    dense = (decoder.MATRICES + 1) * tokens * config.intermediate_size * size
    routed = tokens * config.num_experts_per_tok * width * (3 * size + 2 * WIDE_BYTES)
    logits = config.vocab_size * (size + decoder.LOGIT_BYTES)
    return around + max(attention, dense, routed, logits)


def _decode_bytes(arch: Architecture, work: Workload, size: int) -> int:
    """On a GPU the weights of the chosen experts are copied together."""
    config, cached = arch.decoder, arch.family.cache.length(work.prompt_tokens, work.decode_steps)
    pairs = cached * config.num_attention_heads
    gathered = config.num_experts_per_tok * decoder.expert_parameters(config) * size
    logits = config.vocab_size * (size + decoder.LOGIT_BYTES)
    around = (8 * config.hidden_size + 4 * config.intermediate_size) * WIDE_BYTES
    return around + max(pairs * (2 * size + 2 * WIDE_BYTES), gathered, logits)
