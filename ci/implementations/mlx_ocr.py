"""L2: mlx-ocr-unlimited, a port of Unlimited-OCR to mlx, from a clone of its repository on the path.

The sizes of SAM and CLIP and the id of ``<image>`` are literals of its code. They are replaced by the checkpoint's.
"""

import importlib
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.adapters.mlx import MlxCache, MlxState, embedded, inputs_of, to_mlx, to_torch, vision_of, watched
from pytest_dsocr.adapters.mlx_vlm import sam_encoder
from pytest_dsocr.contract import GRID, PIXELS
from pytest_dsocr.contract.image import images_in
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import IMAGE
from pytest_dsocr.engine.places import architecture_of
from pytest_dsocr.engine.portable import write_portable
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr.sizes import sizes_of
from pytest_dsocr.models.deepseek_ocr.vendor import sam_arguments
from pytest_dsocr.subjects.protocol import Setup

DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
"""Names of dtypes in the port."""
MODULES = {"sam": "sam_model", "clip": "vision_model", "projector": "projector"}
"""Modules of the port by stage of the encoder."""


def resize(architecture: Architecture) -> None:
    """Make it build SAM and CLIP in these sizes; it knows those of the published model alone."""
    vision: Any = importlib.import_module("model.vision_encoder")
    model: Any = importlib.import_module("model.unlimited_ocr")
    sizes = sizes_of(architecture)
    sam, clip = sizes.sam, sizes.clip
    model.build_sam_vit_b = partial(
        sam_encoder, vision.ImageEncoderViT, sam, **sam_arguments(sam), patch_embed_bias=True
    )
    model.build_clip_l = partial(
        vision.VitModel,
        hidden_size=clip.width,
        image_size=clip.image_size,
        patch_size=clip.patch_size,
        num_layers=clip.layers,
        num_heads=clip.heads,
        ffn_hidden_size=clip.width * clip.mlp_ratio,
    )


class MlxOcr:
    """The port as its command calls it; fulfils ``StagedSubject``."""

    seams = MODELS["unlimited_ocr"].vision_seams

    def __init__(self, setup: Setup) -> None:
        self._mx: Any = importlib.import_module("mlx.core")
        self._ocr: Any = importlib.import_module("ocr")
        resize(architecture_of(setup.checkpoint))
        with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()):
            write_portable(setup.checkpoint, Path(folder))
            importlib.import_module("convert").convert(folder, f"{folder}/mlx", DTYPES[setup.dtype])
            self._model, self._tokenizer = self._ocr.load(f"{folder}/mlx")
        vars(self._ocr).update(IMAGE_TOKEN_ID=self._tokenizer.convert_tokens_to_ids(IMAGE))
        self.dtype = setup.dtype

    def read(self, page: Path, *, prompt: str, preset: Preset, max_new_tokens: int) -> str:
        """Read one page, or the pages of a folder, to the end."""
        return self._asked(page, prompt, preset, max_tokens=max_new_tokens)

    def inputs(self, page: Path, *, prompt: str, preset: Preset) -> dict[str, Tensor]:
        """Return what reaches its ``generate``."""
        seen: dict[str, Any] = {}

        def generate(_: Any, input_ids: Any, **given: Any) -> tuple[list[int], float]:
            seen.update(given, input_ids=input_ids)
            return [], 0.0

        whole = self._ocr.generate
        try:
            self._ocr.generate = generate
            self._asked(page, prompt, preset)
        finally:
            self._ocr.generate = whole
        [(crops, pages)] = seen["images"]
        return inputs_of(seen, [_pixels(to_torch(views)) for views in (crops, pages)])

    def _asked(self, page: Path, prompt: str, preset: Preset, **options: Any) -> str:
        """Ask as its command asks for an image, or for the pages of a document."""
        files = images_in(page) if page.is_dir() else [page]
        images = [self._ocr.load_image(file).convert("RGB") for file in files]
        asked = self._model, self._tokenizer
        if page.is_dir():
            text = self._ocr.infer_multi(*asked, images, prompt, image_size=preset.image_size, **options)
        else:
            sizes = {"crop": preset.crop, "base_size": preset.base_size, "image_size": preset.image_size}
            text = self._ocr.infer(*asked, images[0], prompt, **sizes, **options)
        return str(text)

    def vision(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Run vision, and watch its encoders and the projector."""
        inner = self._model.model
        with watched(inner, MODULES) as seen:
            embeds = inner._embed_images(
                inner.embed_tokens(to_mlx(inputs["input_ids"])),
                [tuple(to_mlx(inputs[name], self.dtype) for name in PIXELS)],
                to_mlx(inputs["images_seq_mask"]),
                to_mlx(inputs[GRID]),
            )
        return vision_of(embeds, seen, inputs)

    def prefill(self, inputs: Mapping[str, Tensor], vision_fusion: Tensor | None) -> MlxState:
        """Run the prompt with these features at its image tokens."""
        embeds = embedded(self._model.model.embed_tokens, inputs, vision_fusion)
        state = MlxState(MlxCache([_Layer(layer) for layer in self._model.make_cache()]), torch.empty(0))
        return self._fed(state, inputs_embeds=to_mlx(embeds, self.dtype))

    def step(self, state: MlxState, token: int) -> Tensor:
        """Feed one token."""
        return self._fed(state, input_ids=self._mx.array([[token]])).logits

    def _fed(self, state: MlxState, **given: Any) -> MlxState:
        caches = [layer.cache for layer in state.cache.stored]
        state.logits = to_torch(self._model(**given, cache=caches)[0, -1])
        return state


def _pixels(views: Tensor) -> Tensor:
    """Return pixels in the vendor's dtype, if they were rounded to it; views of zeros have none."""
    rounded = views.bfloat16()
    return rounded if views.any() and torch.equal(rounded.float(), views) else views


@dataclass(frozen=True)
class _Layer:
    """A layer's cache: the prompt's keys and values, then those of the window, oldest first."""

    cache: Any

    @property
    def state(self) -> tuple[Any, Any]:
        """Keys and values, ``[1, G, S, D]``."""
        mx: Any = importlib.import_module("mlx.core")
        held = self.cache
        if held._dk is None:
            return held._pk, held._pv
        return mx.concatenate([held._pk, held._dk], axis=2), mx.concatenate([held._pv, held._dv], axis=2)
