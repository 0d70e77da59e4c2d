"""Models without a download: the sizes that have names; imports no torch."""

from __future__ import annotations

from dataclasses import replace

from pytest_dsocr.engine.architecture import Architecture, ClipConfig, DecoderConfig, SamConfig
from pytest_dsocr.engine.names import SYNTHETIC_NAME
from pytest_dsocr.engine.vocabulary import VENDOR_VOCAB_SIZE

_SMALL = Architecture(
    SamConfig(
        width=64,
        layers=4,
        heads=4,
        global_attn_indexes=(1, 3),
        neck_channels=32,
        downsample_channels=(48, 64),
    ),
    ClipConfig(width=64, layers=2, heads=4),
    DecoderConfig(
        vocab_size=VENDOR_VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        max_position_embeddings=8192,
    ),
)

SYNTHETIC = {
    "tiny": replace(_SMALL, decoder=replace(_SMALL.decoder, vocab_size=512)),
    "small": _SMALL,
    "full": replace(Architecture(), decoder=replace(DecoderConfig(), max_position_embeddings=8192)),
}
"""Architectures by name: ``small`` is ``tiny`` with the vendor's vocabulary, ``full`` is the vendor's model."""

DEFAULT_SEED = 2
"""Of the first few seeds the one whose small models differ most from page to page and do not stop at once."""


def synthetic(name: str) -> tuple[Architecture, int] | None:
    """Give the size and the seed that ``synthetic:<name>`` stands for; None for any other name."""
    found = SYNTHETIC_NAME.fullmatch(name)
    return (SYNTHETIC[found["size"]], int(found["seed"] or DEFAULT_SEED)) if found else None
