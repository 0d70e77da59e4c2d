"""Processors as servers have them, over this project's own inputs: right ones and others."""

from __future__ import annotations

from typing import Any

from pytest_dsocr.contract.inputs import prepare_inputs
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.tokenizer import Tokenizer


class Right:
    """Has the interface of vLLM's: rows without a batch, pixels in float32, no zeros where there are no crops."""

    def __init__(self, tokenizer: Any, image_size: int = 1, base_size: int = 1, normalize: bool = False) -> None:
        assert normalize, "what processor_config.json says"
        self.tokenizer, self.image_size, self.base_size = Tokenizer.wrap(tokenizer), image_size, base_size

    def __call__(self, *, prompt: str, images: list[Any], crop_mode: bool = True) -> dict[str, Any]:
        preset = Preset("any", self.base_size, self.image_size, crop_mode)
        made = prepare_inputs(images, prompt, preset, self.tokenizer)
        has_crops = int(made.images_spatial_crop.prod()) > 1
        return {
            "input_ids": made.input_ids[0],
            "images_seq_mask": made.images_seq_mask[0],
            "images_spatial_crop": made.images_spatial_crop,
            "images_crop": made.images_crop.float()[None] if has_crops else made.images_crop[:0],
            "pixel_values": made.images_ori.float(),
        }


class AsSglang(Right):
    """Takes the text by another name, and cropping in another method."""

    def __call__(self, *, text: list[str], images: list[Any]) -> dict[str, Any]:  # type: ignore[override]
        raise AssertionError("it takes no preset")

    def process_one(self, prompt: str, images: list[Any], cropping: bool = True) -> dict[str, Any]:
        return super().__call__(prompt=prompt, images=images, crop_mode=cropping)


class WithoutPixels(Right):
    """Returns ids alone."""

    def __call__(self, *, prompt: str, images: list[Any], crop_mode: bool = True) -> dict[str, Any]:
        return {"input_ids": super().__call__(prompt=prompt, images=images, crop_mode=crop_mode)["input_ids"]}


class OfPictures(Right):
    """Takes no text."""

    def __call__(self, images: list[Any]) -> dict[str, Any]:  # type: ignore[override]
        raise AssertionError("nothing to read it with")
