"""L1: the page is resized with a bilinear filter, where the vendor's code leaves Pillow its default, bicubic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageOps
from torch import Tensor

from pytest_dsocr.contract.image import GREY, load_image
from pytest_dsocr.contract.inputs import Inputs, pixels
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.families import DEFAULT
from pytest_dsocr.subjects.protocol import Setup

MISTAKEN = Image.Resampling.BILINEAR


class Bilinear:
    """Reads from its own pixels, and shows them."""

    def __init__(self, setup: Setup) -> None:
        self.engine = Engine.from_checkpoint(setup.checkpoint, device=setup.device, dtype=setup.dtype)

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        prepared = self.prepare(page, prompt, preset)
        return self.engine.run_prepared(prepared, max_new_tokens=max_new_tokens).text

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        return self.prepare(page, prompt, preset).tensors

    def prepare(self, page: Path, prompt: str, preset: Preset) -> Inputs:
        prepared, image = self.engine.prepare(page, prompt=prompt, preset=preset), load_image(page)
        side = preset.view_size
        whole = ImageOps.pad(image, (side, side), MISTAKEN, color=GREY)
        prepared = replace(prepared, images_ori=pixels([whole]))
        columns, rows = prepared.images_spatial_crop[0].tolist()
        if columns * rows == 1:
            return prepared
        stretched = image.resize((columns * DEFAULT.tiling.crop_px, rows * DEFAULT.tiling.crop_px), MISTAKEN)
        corners = [
            (x * DEFAULT.tiling.crop_px, y * DEFAULT.tiling.crop_px) for y in range(rows) for x in range(columns)
        ]
        crops = [stretched.crop((x, y, x + DEFAULT.tiling.crop_px, y + DEFAULT.tiling.crop_px)) for x, y in corners]
        return replace(prepared, images_crop=pixels(crops))
