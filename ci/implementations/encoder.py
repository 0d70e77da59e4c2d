"""L3: the package deepseek-ocr-encoder, which is CLIP around a model of the vendor's form, within the session."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.subjects.protocol import Setup
from pytest_dsocr.subjects.session import SessionSubject, session_subject


class Encoder(SessionSubject):
    """Its CLIP on the session's SAM, and its one way to open a page, a view of 1024 px, in place of the preset base."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(session_subject(setup).session)
        model: Any = self.session.model
        package = importlib.import_module("deepseek_ocr_encoder")
        made = package.DeepSeekOCREncoder(
            model.model, device=setup.device, dtype=model.dtype, precompute_pos_for_1024=False
        )
        made.embed_dim, made.sam = model.model.vision_model.embeddings.class_embedding.numel(), nn.Identity()
        self._encoder, model.clip = made, self._clip

    def _clip(self, sam: Tensor) -> Tensor:
        """Return ``[N, 1 + h * w, C]``; it has no class token, and adds SAM's features, which are taken off again."""
        tokens = sam.flatten(2).transpose(1, 2)
        found = self._encoder._forward_core(sam) - tokens
        return torch.cat([torch.zeros_like(found[:, :1]), found], 1)

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        """Return the session's, of the preset base with its own pixels."""
        inputs = super().inputs(page, prompt=prompt, preset=preset)
        if preset.name == "base":
            with Image.open(page) as image:  # as its encode does, which pins memory and so needs a GPU
                inputs["images_ori"] = self._encoder._preproc_1024(image.convert("RGB"))[None].bfloat16()
        return inputs
