"""Unlimited-OCR: DeepSeek-OCR's encoder and tensors, up to 32 crops, and a ring of 128 for keys and values."""

from dataclasses import replace
from pathlib import Path

from pytest_dsocr.contract.markup import OutputForm
from pytest_dsocr.contract.policy import CachePolicy, DecodePolicy
from pytest_dsocr.models.deepseek_ocr import FAMILY as LIKE
from pytest_dsocr.models.deepseek_ocr import TILING as LIKE_TILING

TILING = replace(LIKE_TILING, most=32)
OWN_SYMBOLS = {
    "prefill": ("SlidingWindowLlamaAttention", "SlidingWindowLlamaAttention.forward"),
    "decode": ("UnlimitedOCRForCausalLM.infer_multi", "SlidingWindowNoRepeatNgramProcessor", "TPSTextStreamer"),
}
CONTRACT = {
    stage: tuple(name.replace("DeepseekOCR", "UnlimitedOCR") for name in names) + OWN_SYMBOLS.get(stage, ())
    for stage, names in LIKE.vendor.contract.items()
}
OF_LIKE = LIKE.vendor.published
PUBLISHED = {
    **OF_LIKE,
    "whole": {**OF_LIKE["whole"], "model_type": "unlimited-ocr"},
    "language": {"architectures": ["DeepseekOCRForCausalLM"]},
    "decoder": {**OF_LIKE["decoder"], "v_head_dim": 128},
    "processor": {**OF_LIKE["processor"], "processor_class": "UnlimitedOCRHFProcessor", "sft_format": "unlimitedocr"},
}

FAMILY = replace(
    LIKE,
    name="unlimited_ocr",
    title="Unlimited-OCR",
    presets={name: replace(LIKE.presets[name], tiling=TILING) for name in ("gundam", "base")},
    prompts={"markdown": "<image>document parsing.", "pages": "<image>Multi page parsing."},
    prompt_ids={"document parsing.": (34030, 76466, 16), "Multi page parsing.": (37460, 4366, 76466, 16)},
    decoding=DecodePolicy(eos_id=1, no_repeat_ngram_size=0, max_new_tokens=32768, max_length=32768),
    cache=CachePolicy(ring=128),
    vendor=replace(
        LIKE.vendor,
        architecture="UnlimitedOCRForCausalLM",
        files=("modeling_unlimitedocr.py", *LIKE.vendor.files[1:]),
        contract=CONTRACT,
        published=PUBLISHED,
    ),
    form=OutputForm(label_in_det=True, flat_box=True, strips_label=True, result_file="result.md"),
    pages_prompt="pages",
    embedded={},
    based_on=LIKE,
    ports=Path(__file__).with_name("ports.toml"),
    is_unmarked=False,
)
