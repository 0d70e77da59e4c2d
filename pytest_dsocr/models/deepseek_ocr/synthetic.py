"""Sizes of DeepSeek-OCR's checkpoints of random weights."""

from dataclasses import replace

from pytest_dsocr.layers.sizes import DecoderConfig, SamConfig
from pytest_dsocr.models.deepseek_ocr.sizes import ClipConfig, DeepEncoder

_SMALL_ENCODER = DeepEncoder.of(
    SamConfig(width=64, layers=4, heads=4, global_attn_indexes=(1, 3), neck_channels=32, downsample_channels=(48, 64)),
    ClipConfig(width=64, layers=2, heads=4),
)
_SMALL_DECODER = DecoderConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=3,
    num_attention_heads=4,
    num_key_value_heads=4,
    n_routed_experts=8,
    num_experts_per_tok=2,
    moe_intermediate_size=32,
    max_position_embeddings=8192,
)
_FEW = DecoderConfig(
    vocab_size=512, num_hidden_layers=2, n_routed_experts=8, num_experts_per_tok=2, max_position_embeddings=8192
)

SIZES = {
    "tiny": (_SMALL_ENCODER, replace(_SMALL_DECODER, vocab_size=512)),
    "small": (_SMALL_ENCODER, _SMALL_DECODER),
    "published": (DeepEncoder.published(), _FEW),
    "full": (DeepEncoder.published(), DecoderConfig(max_position_embeddings=8192)),
}
"""``small`` is ``tiny`` with the vendor's vocabulary, and ``full`` is the vendor's model. ``published`` has the
published vision and widths, which ports have in their code, but few layers, experts and tokens."""
