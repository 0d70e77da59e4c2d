"""L3: transformers' own DeepSeek-OCR-2, its processor and its model, with any checkpoint of the model."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from PIL import Image
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from ci.implementations.unlimited import Model, TransformersUnlimited, write_for_server
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr2.sizes import sizes_of


class Given(nn.Module):
    """SAM's place within the vision tower, where features are handed on as they are given."""

    def forward(self, features: Tensor, **_: Any) -> BaseModelOutput:
        """Return SAM's features."""
        return BaseModelOutput(last_hidden_state=features)


class Deepseek2(Model):
    """Model of transformers, wrapped as the stages of the engine.

    The vision tower runs SAM, then the Qwen2 tower. SAM moves to the vendor's place, which leaves the Qwen2 tower.
    """

    family = MODELS["deepseek_ocr2"]
    classes = "DeepseekOcr2"
    renamed: ClassVar[Mapping[str, str]] = {
        "model.sam_model.blocks": "model.sam_model.layers",
        "model.qwen2_model.model.model": "model.vision_tower.vision_encoder",
        "model.qwen2_model": "model.vision_tower",
        "model.projector": "model.multi_modal_projector",
        "model.layers": "model.language_model.layers",
    }

    def __init__(self, whole: Any) -> None:
        super().__init__(whole)
        self.model.sam_model, self.tower.sam_encoder = self.tower.sam_encoder, Given()

    def sam(self, pixels: Tensor) -> Tensor:
        """Encode views ``[N, 3, S, S]``: ``[N, c, S/64, S/64]``."""
        found: Tensor = self.model.sam_model(pixels).last_hidden_state
        return found

    def qwen2(self, sam: Tensor) -> Tensor:
        """Read SAM's features with the learned queries."""
        found: Tensor = self.tower(sam).last_hidden_state
        return found

    def projector(self, qwen2: Tensor, *_: Tensor) -> Tensor:
        """Run the projector on the queries' outputs."""
        found: Tensor = self.model.multi_modal_projector(qwen2)
        return found

    @classmethod
    def encoder_config(cls, of: Architecture) -> dict[str, Any]:
        """Return the Qwen2 tower's sizes, which the vendor's file lacks, and its rotary base."""
        own = sizes_of(of).tower
        return {
            "hidden_size": own.dim,
            "intermediate_size": own.intermediate_size,
            "num_hidden_layers": own.layers,
            "num_attention_heads": own.heads,
            "num_key_value_heads": own.key_value_heads,
            "rope_parameters": {"rope_type": "default", "rope_theta": own.rope_theta},
        }

    @classmethod
    def text_config(cls, of: Architecture) -> dict[str, Any]:
        """Return each layer's kind, which it does not take from the vendor's ``first_k_dense_replace``."""
        dense, layers = of.decoder.first_k_dense_replace, of.decoder.num_hidden_layers
        return {"mlp_layer_types": ["dense"] * dense + ["sparse"] * (layers - dense)}

    @classmethod
    def grids(cls, made: Mapping[str, Any], pages: Sequence[Image.Image], preset: Preset) -> Any:
        """Return each page's grid, of which the processor returns the number of crops: its own function is asked."""
        module = importlib.import_module("transformers.models.deepseek_ocr2.image_processing_deepseek_ocr2")
        tile, tiling = (preset.image_size, preset.image_size), preset.tiling
        return [
            module.get_optimal_tiled_canvas(page.size[::-1], tile, tiling.least, tiling.most) if count else (1, 1)
            for page, count in zip(pages, made["num_local_patches"], strict=True)
        ]


class TransformersDeepseek2(TransformersUnlimited):
    """DeepSeek-OCR-2 of transformers as a subject."""

    model_class = Deepseek2


if __name__ == "__main__":
    write_for_server(Deepseek2, *sys.argv[1:])
