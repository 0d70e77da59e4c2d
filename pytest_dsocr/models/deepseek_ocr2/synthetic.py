"""Sizes of DeepSeek-OCR-2's checkpoints of random weights; views are never smaller than 768 px."""

from pytest_dsocr.layers.sizes import SamConfig
from pytest_dsocr.models.deepseek_ocr.synthetic import SIZES as OF_LIKE
from pytest_dsocr.models.deepseek_ocr2.sizes import DeepEncoder2, TowerConfig

_SMALL_ENCODER = DeepEncoder2.of(
    SamConfig(width=32, layers=2, heads=2, global_attn_indexes=(1,), neck_channels=16, downsample_channels=(24, 48)),
    TowerConfig(dim=48, layers=2, heads=6, key_value_heads=2, intermediate_size=96),
)
_ENCODERS = {"tiny": _SMALL_ENCODER, "small": _SMALL_ENCODER}

SIZES = {name: (_ENCODERS.get(name, DeepEncoder2.published()), decoder) for name, (_, decoder) in OF_LIKE.items()}
"""Sizes of DeepSeek-OCR's decoders, with this encoder."""
