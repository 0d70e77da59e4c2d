"""What torch's own counter, ``torch.utils.flop_counter``, sees of these figures: not all attention kernels.

Two figures are told of everything: ``algorithmic``, which has all products, and ``as_counted``, what the counter says.
"""

from __future__ import annotations

from collections.abc import Mapping

from pytest_dsocr.cost.cost import StageCost

UNCOUNTED: Mapping[tuple[str, str], str] = {
    ("sdpa", "cpu"): "aten::_scaled_dot_product_flash_attention_for_cpu",
    ("flash_attention_2", "cuda"): "flash_attn::_flash_attn_forward",
}
"""Operators without a formula in torch, by attention and kind of device. All others are counted: ``eager`` as the two
products that it is, SDPA on a GPU by its kernels, on ``meta`` as products again."""
ENCODERS = "sdpa"
"""How SAM and CLIP attend, whatever is chosen for the decoder: the session, and the vendor's code."""


def attention_of(stage: str, chosen: str) -> str:
    """Give the attention that a stage computes with where ``chosen`` is the run's."""
    return ENCODERS if stage in ("sam", "clip") else chosen


def as_counted(stage: StageCost, chosen: str, device: str) -> int:
    """Give the FLOPs of a stage that torch's counter says on ``cpu``, ``cuda`` or ``meta``."""
    hidden = (attention_of(stage.stage, chosen), device.partition(":")[0]) in UNCOUNTED
    return stage.cost.matrix_flops - stage.cost.attention_flops * hidden
