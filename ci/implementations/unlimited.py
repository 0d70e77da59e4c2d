"""L3: transformers' own Unlimited-OCR, its processor and its model, with any checkpoint of the family.

:mod:`ci.implementations.deepseek2` changes it into that of DeepSeek-OCR-2.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from inspect import signature
from typing import Any, ClassVar

import torch
import transformers
from PIL import Image
from torch import Tensor, nn
from transformers.image_utils import load_image
from transformers.utils.import_utils import is_torchvision_available

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.contract.image import ImageSource, files_of
from pytest_dsocr.contract.inputs import Inputs
from pytest_dsocr.contract.presets import Preset
from pytest_dsocr.contract.prompt import EOS, IMAGE
from pytest_dsocr.engine.checkpoint import Checkpoint, dtype_named, resolve
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.protocol import OcrModel
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.deepseek_ocr.model import beside
from pytest_dsocr.models.deepseek_ocr.sizes import sizes_of
from pytest_dsocr.subjects.engine import EngineSubject
from pytest_dsocr.subjects.protocol import Setup

RENAMED = {
    "model.sam_model.blocks": "model.vision_tower.sam_encoder.layers",
    "model.vision_model.transformer": "model.vision_tower.vision_encoder.encoder",
    "model.sam_model": "model.vision_tower.sam_encoder",
    "model.vision_model": "model.vision_tower.vision_encoder",
    "model.projector": "model.multi_modal_projector",
    "model.layers": "model.language_model.layers",
}
"""The vendor's names of modules that are watched, and transformers'; what is inside of another comes first."""
CHAT = """{{ bos_token }}{% for message in messages %}{% if message.content is string %}{{ message.content }}{% else %}\
{% for part in message.content %}{{ part.text if part.type == "text" else "<image>" }}{% endfor %}{% endif %}\
{% endfor %}"""
KEPT = {"start_anchor_pattern": r"(?s)^.*\Z", "fields": {"content": {"close": EOS, "content": "text"}}}
"""Lets ``transformers serve`` keep special tokens: it takes them out of what no template of responses describes."""


class Cache:
    """Cache of transformers: the prompt, then a window of the last tokens, oldest first."""

    def __init__(self, config: Any) -> None:
        self.past, self.seen = transformers.DynamicCache(config=config), 0

    @property
    def length(self) -> int:
        """Positions held: between two steps one less than the window has, for the next token takes that place."""
        return self.keys(0).shape[2] if self.seen else 0

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.past.layers)

    def keys(self, layer: int) -> Tensor:
        """Return a layer's keys, ``[B, G, S, D]``."""
        return self._held(layer, "keys")

    def values(self, layer: int) -> Tensor:
        """Return a layer's values, ``[B, G, S, D]``."""
        return self._held(layer, "values")

    def drop_last(self) -> None:
        """Forget the last position."""
        self.past.crop(-1)
        self.seen -= 1

    def _held(self, layer: int, what: str) -> Tensor:
        held: Any = self.past.layers[layer]
        if not hasattr(held, f"prefill_{what}"):
            return getattr(held, what)
        return torch.cat([getattr(held, f"prefill_{what}"), getattr(held, what)], dim=2)


class Model(OcrModel[Cache]):
    """Model of transformers, wrapped as the stages of the engine."""

    family = MODELS["unlimited_ocr"]
    classes = "UnlimitedOcr"
    """Beginning of the names of transformers' classes."""
    renamed: ClassVar[Mapping[str, str]] = RENAMED

    def __init__(self, whole: Any) -> None:
        self.whole, self.model, self.lm_head = whole, whole.model, whole.lm_head
        self.tower, self.text = whole.model.vision_tower, whole.model.language_model
        taken = signature(self.text.forward).parameters
        self.cache_name = "cache" if "cache" in taken else "past_key_values"  # its name before 5.24

    @classmethod
    def made(cls, name: str, **options: Any) -> Any:
        """Make an object of one of transformers' classes of the model, such as ``Config``."""
        return getattr(transformers, f"{cls.classes}{name}")(**options)

    @property
    def max_position_embeddings(self) -> int:
        """The limit of positions in its config."""
        return int(self.text.config.max_position_embeddings)

    @property
    def separator(self) -> Tensor:
        """The vector that ends an image, ``[C]``."""
        found: Tensor = self.model.view_separator
        return found

    def get_submodule(self, target: str) -> nn.Module:
        """Return the module that the vendor calls ``target``."""
        old = next((old for old in self.renamed if target.startswith(old)), "")
        return self.whole.get_submodule(self.renamed.get(old, "") + target.removeprefix(old))

    def sam(self, pixels: Tensor) -> Tensor:
        """Encode views ``[N, 3, S, S]``: ``[N, c, S/64, S/64]``."""
        return self.tower.sam_encoder(pixels).last_hidden_state

    def clip(self, sam: Tensor) -> Tensor:
        """Run CLIP on SAM's features."""
        return self.tower.vision_encoder(sam).last_hidden_state

    def projector(self, clip: Tensor, sam: Tensor) -> Tensor:
        """Run the projector on CLIP's features beside SAM's."""
        return self.model.multi_modal_projector(beside(clip, sam))

    def embed(self, input_ids: Tensor) -> Tensor:
        """Look up ``[B, T]`` ids: ``[B, T, C]``."""
        return self.text.embed_tokens(input_ids)

    def new_cache(self) -> Cache:
        """Return an empty cache."""
        return Cache(self.text.config)

    def join_caches(self, caches: list[Cache]) -> Cache:
        """Refuse: its batches pad prompts, which the engine's do not."""
        raise DsocrError("this wraps transformers' model for one page at a time")

    def decode(self, embeds: Tensor, cache: Cache, *, all_logits: bool = False) -> Tensor:
        """Run the decoder on ``[1, T, C]``."""
        positions = torch.arange(cache.seen, cache.seen + embeds.shape[1], device=embeds.device)[None]
        held = {self.cache_name: cache.past}
        out = self.text(inputs_embeds=embeds, position_ids=positions, use_cache=True, **held)
        cache.seen += embeds.shape[1]
        hidden = out.last_hidden_state
        return self.lm_head(hidden if all_logits else hidden[:, -1:]).float()

    @classmethod
    def encoder_config(cls, of: Architecture) -> dict[str, Any]:
        """Return CLIP's sizes."""
        own = sizes_of(of).clip
        return {
            "hidden_size": own.width,
            "image_size": own.image_size,
            "intermediate_size": own.width * own.mlp_ratio,
            "num_hidden_layers": own.layers,
            "num_attention_heads": own.heads,
        }

    @classmethod
    def text_config(cls, of: Architecture) -> dict[str, Any]:
        """Return the decoder's entries besides the vendor's, each layer's type of attention among them."""
        ring = of.family.cache.ring
        full = {} if ring else {"layer_types": ["full_attention"] * of.decoder.num_hidden_layers}
        return {"sliding_window": ring or 128, **full}

    @classmethod
    def grids(cls, made: Mapping[str, Any], pages: Sequence[Image.Image], preset: Preset) -> Any:
        """Return each page's grid, columns first, as the processor has it."""
        return made["patches_grid"]


class FullAttention(Model):
    """DeepSeek-OCR: the same graph without a window."""

    family = DEEPSEEK_OCR


class TransformersUnlimited(EngineSubject):
    """Model of transformers as a subject.

    Inputs come from its processor if torchvision is installed, otherwise from the engine.
    """

    read_many: Any = None
    model_class: type[Model] = Model

    def __init__(self, setup: Setup) -> None:
        found = resolve(setup.checkpoint)
        if found.folder is None:
            raise DsocrError(f"{setup.checkpoint} has no files; export it, or name a folder")
        own = self.model_class
        model = own if found.architecture.family.name == own.family.name else FullAttention
        engine = Engine(model(_loaded(model, found, setup)), found.tokenizer)
        super().__init__(engine)
        if is_torchvision_available() and model is own:
            tokenizer = transformers.AutoTokenizer.from_pretrained(found.folder)
            engine.prepare = partial(_prepared, own, tokenizer, setup.device)  # type: ignore[method-assign]


def _loaded(model: type[Model], found: Checkpoint, setup: Setup) -> Any:
    loaded = getattr(transformers, f"{model.classes}ForConditionalGeneration").from_pretrained(
        found.folder,
        config=_config(model, found.architecture, found.tokenizer.special.image),
        attn_implementation="eager",
        dtype=dtype_named(setup.dtype),
    )
    return loaded.eval().to(setup.device)


def _config(model: type[Model], of: Architecture, image_id: int) -> Any:
    """Return its config with a checkpoint's sizes, of which the vendor's file names vision's in another way."""
    encoder: Any = of.encoder
    sam = {
        "hidden_size": encoder.sam.width,
        "image_size": encoder.sam.image_size,
        "output_channels": encoder.sam.neck_channels,
        "num_hidden_layers": encoder.sam.layers,
        "num_attention_heads": encoder.sam.heads,
        "global_attn_indexes": [*encoder.sam.global_attn_indexes],
        "downsample_channels": [*encoder.sam.downsample_channels],
        "mlp_dim": encoder.sam.width * encoder.sam.mlp_ratio,
    }
    text = {**of.to_config()["language_config"], **model.text_config(of)}
    vision = {"sam_config": sam, "encoder_config": model.encoder_config(of)}
    return model.made("Config", vision_config=vision, text_config=text, image_token_id=image_id)


def write_for_server(model: type[Model], checkpoint: str, folder: str) -> None:
    """Write a checkpoint as transformers' own, with a processor for gundam and what its server needs beside."""
    found = resolve(checkpoint)
    loaded = _loaded(model, found, Setup(checkpoint=checkpoint, dtype="float32"))
    special = found.tokenizer.special
    loaded.generation_config = transformers.GenerationConfig(eos_token_id=special.eos, pad_token_id=special.pad)
    loaded.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(found.folder)
    tokenizer.response_template = KEPT
    gundam = model.family.preset("gundam")
    size = {"height": gundam.base_size, "width": gundam.base_size}
    images = model.made("ImageProcessor", size=size, tile_size=gundam.image_size)
    model.made("Processor", image_processor=images, tokenizer=tokenizer, chat_template=CHAT).save_pretrained(folder)


def _prepared(
    model: type[Model],
    tokenizer: Any,
    device: str,
    page: ImageSource,
    prompt: str = "markdown",
    preset: str | Preset = "gundam",
    **_: Any,
) -> Inputs:
    """Return what its processor makes of a page, under the vendor's names."""
    sizes = model.family.preset(preset)
    side = sizes.base_size if sizes.crop else sizes.image_size
    options = {"size": {"height": side, "width": side}, "crop_to_patches": sizes.crop, "tile_size": sizes.image_size}
    found = files_of(page)
    pages = [
        load_image(one if isinstance(one, Image.Image) else str(one))
        for one in (found if isinstance(found, list) else [found])
    ]
    text = model.family.prompts.get(prompt, prompt)
    if model.family.pages_prompt:
        text = text.replace(IMAGE, IMAGE * len(pages))
    processor = model.made("Processor", image_processor=model.made("ImageProcessor"), tokenizer=tokenizer)
    made = processor(images=pages, text=text, return_tensors="pt", **options)
    ids = made["input_ids"]
    if ids[0, 0] != tokenizer.bos_token_id:  # real tokenizers add it of themselves
        ids = torch.cat([ids.new_tensor([[tokenizer.bos_token_id]]), ids], 1)
    crops = made.get("pixel_values_local")
    crops = torch.zeros(1, 3, sizes.base_size, sizes.base_size) if crops is None else crops.bfloat16()
    inputs = Inputs(
        input_ids=ids,
        images_seq_mask=ids == tokenizer.convert_tokens_to_ids(IMAGE),
        images_spatial_crop=torch.tensor(model.grids(made, pages, sizes)),
        images_crop=crops,
        images_ori=made["pixel_values"].bfloat16(),
    )
    return inputs.to(device)


if __name__ == "__main__":
    write_for_server(Model, *sys.argv[1:])
