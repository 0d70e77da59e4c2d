"""How much memory a stage's activations take at most, beside the weights and the cache.

A bound for code that is written as the session is: each operator's result is stored; attention of the towers is fused,
but for its bias, which a kernel may copy to a size that it likes. Two fifths of it are used at least.
"""

from __future__ import annotations

from pytest_dsocr.cost.cost import ITEM_BYTES
from pytest_dsocr.cost.decoder import LOGIT_BYTES, MATRICES, SESSION, Way, expert_parameters
from pytest_dsocr.cost.encoders import features_side
from pytest_dsocr.cost.model import calls
from pytest_dsocr.cost.workload import Workload
from pytest_dsocr.engine.architecture import Architecture, ClipConfig, DecoderConfig, SamConfig

WIDE_BYTES = ITEM_BYTES["float32"]
"""Of numbers that are computed in float32, whatever the dtype."""


def activation_peaks(arch: Architecture, work: Workload, *, way: Way = SESSION) -> dict[str, int]:
    """Return the most bytes that are alive at once in ``sam``, ``clip``, ``prefill`` and ``decode``."""
    size = ITEM_BYTES[work.dtype]
    views = [(side_px // arch.sam.patch_size, features_side(arch.sam, side_px), n) for side_px, n in calls(work)]
    return {
        "sam": max(size * _sam(arch.sam, patches, n) for patches, _, n in views),
        "clip": max(size * _clip(arch.clip, n * (side**2 + 1)) for _, side, n in views),
        "prefill": _prefill(arch.decoder, work, size, way),
        "decode": _decode(arch.decoder, work, size),
    }


def _sam(config: SamConfig, side: int, views: int) -> int:
    """Input, norm, windows, queries with keys and values, and the output twice, beside the bias in its making."""
    peaks = [views * side**2 * config.width * (3 + 2 * config.mlp_ratio)]
    for layer in range(config.layers):
        window = side if layer in config.global_attn_indexes else config.window_size
        patches = views * (-(-side // window) * window) ** 2
        bias = 2 * patches * config.heads * (window**2 + window)
        peaks.append(bias + 8 * patches * config.width)
    return max(peaks)


def _clip(config: ClipConfig, rows: int) -> int:
    """Input, norm and output, and four steps of the activation; attention takes less."""
    return rows * config.width * (3 + 4 * config.mlp_ratio)


def _prefill(config: DecoderConfig, work: Workload, size: int, way: Way) -> int:
    tokens, width = work.prompt_tokens, config.hidden_size
    around = tokens * width * (4 * size + 3 * WIDE_BYTES)
    pairs = tokens**2 * config.num_attention_heads if work.attention == "eager" else 0
    attention = pairs * (2 * size + 2 * WIDE_BYTES) + 8 * tokens * width * size
    dense = (MATRICES + 1) * tokens * config.intermediate_size * size
    routed = tokens * config.num_experts_per_tok * width * (3 * size + 2 * WIDE_BYTES)
    logits = (tokens if way.all_logits else 1) * config.vocab_size * (size + LOGIT_BYTES)
    return around + max(attention, dense, routed, logits)


def _decode(config: DecoderConfig, work: Workload, size: int) -> int:
    """On a GPU the weights of the chosen experts are copied together."""
    pairs = work.batch * (work.prompt_tokens + work.decode_steps) * config.num_attention_heads
    gathered = work.batch * config.num_experts_per_tok * expert_parameters(config) * size
    logits = work.batch * config.vocab_size * (size + LOGIT_BYTES)
    around = work.batch * (8 * config.hidden_size + 4 * config.intermediate_size) * WIDE_BYTES
    return around + max(pairs * (2 * size + 2 * WIDE_BYTES), gathered, logits)
