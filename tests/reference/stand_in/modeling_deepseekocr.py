"""A stand-in for the vendor's files, written for this project, so that its worker can be tested without them.

It has the vendor's file names and as much of its surface as the worker touches, around this project's own engine and
contract. It is a double of the vendor's *process*, never of its numbers: what is compared with it is compared with
ourselves, and says nothing about the vendor's model.
"""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from torch import nn

from pytest_dsocr.contract.artifacts import write_artifacts
from pytest_dsocr.contract.image import load_image
from pytest_dsocr.contract.inputs import prepare_inputs
from pytest_dsocr.contract.markup import Span, clean_output, parse
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR

from . import planted
from .configuration_deepseek_v2 import DeepseekOCRConfig
from .conversation import render
from .deepencoder import MlpProjector
from .modeling_deepseekv2 import Decoding

print("imported")  # noqa: T201
os.write(1, b"imported, from C\n")


def build_sam_vit_b() -> nn.Module:
    raise NotImplementedError


def build_clip_l() -> nn.Module:
    raise NotImplementedError


def re_match(text: str) -> tuple[list[tuple[Span, str]], list[str], list[str]]:
    return [(span, span.label) for span in parse(text, DEEPSEEK_OCR.form).spans], [], []


def extract_coordinates_and_label(found: tuple[Span, str], *size_px: int) -> tuple[str, list[Any]]:
    span, label = found
    return label, list(span.boxes)


class DeepseekOCRForCausalLM(Decoding):
    def __init__(self, config: DeepseekOCRConfig) -> None:
        super().__init__(config.architecture)
        core: Any = self.model
        core.sam_model, core.vision_model = build_sam_vit_b(), build_clip_l()
        core.projector = MlpProjector(SimpleNamespace())

    def clip(self, sam: Any) -> Any:
        return self.model.vision_model(sam, sam)

    def infer(
        self,
        tokenizer: Any,
        prompt: str,
        image_file: str,
        output_path: str,
        base_size: int,
        image_size: int,
        crop_mode: bool,
        save_results: bool = False,
    ) -> None:
        planted.strike(image_file)
        os.write(1, b"noise from C\n")
        Path(output_path, "images").mkdir(parents=True, exist_ok=True)
        page = load_image(image_file)
        preset = replace(DEEPSEEK_OCR.quickest, base_size=base_size, image_size=image_size, crop=crop_mode)
        inputs = prepare_inputs(page, render(prompt), preset, Tokenizer.wrap(tokenizer))
        ids = inputs.input_ids.masked_fill(inputs.images_seq_mask, DEEPSEEK_OCR.special.image)
        options: dict[str, Any] = {
            "images": [(inputs.images_crop, inputs.images_ori)],
            "images_seq_mask": inputs.images_seq_mask,
            "images_spatial_crop": inputs.images_spatial_crop,
            "max_new_tokens": DEEPSEEK_OCR.decoding.max_new_tokens,
            "no_repeat_ngram_size": DEEPSEEK_OCR.decoding.no_repeat_ngram_size,
            "eos_token_id": tokenizer.eos_token_id,
        }
        generated = self.generate(ids, **options)
        text = tokenizer.decode(generated[0, ids.shape[1] :])
        if save_results:
            for found in re_match(clean_output(text))[0]:
                extract_coordinates_and_label(found, *page.size)
            write_artifacts(text, page, output_path, DEEPSEEK_OCR.form)
