"""The vendor's own model object behind the session's stages: an NVTX session around the vendor's classes.

``Engine(VendorModel(model), Tokenizer.wrap(tokenizer))`` is all it takes. The object is used as it is; only its
``forward``, which runs vision and decoder in one, is not called: the stages are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pytest_dsocr.engine.fusion import beside
from pytest_dsocr.families import family_of
from pytest_dsocr.families.family import Family
from pytest_dsocr.foundation.errors import DsocrError


class VendorCache:
    """The cache object that the vendor's decoder returns (``transformers``' ``DynamicCache``)."""

    def __init__(self) -> None:
        self.past: Any = None

    @property
    def length(self) -> int:
        """Positions held."""
        return 0 if self.past is None else int(self.past.get_seq_length())

    @property
    def layers(self) -> int:
        """Number of layers."""
        return 0 if self.past is None else len(self.past.key_cache)

    def keys(self, layer: int) -> Tensor:
        """Return a layer's keys, ``[B, G, S, D]``."""
        keys: Tensor = self.past.key_cache[layer]
        return keys

    def values(self, layer: int) -> Tensor:
        """Return a layer's values, ``[B, G, S, D]``."""
        values: Tensor = self.past.value_cache[layer]
        return values

    def drop_last(self) -> None:
        """Forget the last position."""
        self.past.crop(self.length - 1)


class VendorModel:
    """The vendor's ``DeepseekOCRForCausalLM``; fulfils :class:`~pytest_dsocr.engine.protocol.OcrModel`.

    Args:
        model: the vendor's object, loaded by whatever means, in evaluation mode.
    """

    def __init__(self, model: Any) -> None:
        family = family_of([type(model).__name__])
        absent = [one.module for one in family.of_views if not hasattr(model.model, one.module.rpartition(".")[2])]
        if absent:
            raise DsocrError(
                f"the model object has no {absent[0]}, so it is not the vendor's {family.vendor.architecture}; "
                "pass the object that AutoModel.from_pretrained(..., trust_remote_code=True) gives"
            )
        if model.training:
            raise DsocrError(
                "the vendor's model is in training mode, where vision runs again at every step; call model.eval()"
            )
        self._whole = model
        self._core = model.model

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self._whole.lm_head.weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' dtype."""
        dtype: torch.dtype = self._whole.lm_head.weight.dtype
        return dtype

    @property
    def family(self) -> Family:
        """The family by the class of the vendor's object."""
        return family_of([type(self._whole).__name__])

    @property
    def image_newline(self) -> Tensor:
        """The vector that ends each row of vision tokens, ``[C]``."""
        newline: Tensor = self._core.image_newline
        return newline

    @property
    def view_seperator(self) -> Tensor:
        """The vector that ends an image, ``[C]``."""
        separator: Tensor = self._core.view_seperator
        return separator

    @property
    def max_position_embeddings(self) -> int | None:
        """The limit of positions in the vendor's config."""
        limit: int | None = getattr(self._whole.config, "max_position_embeddings", None)
        return limit

    def get_submodule(self, target: str) -> nn.Module:
        """Return one of the vendor's modules; raise ``AttributeError`` where there is none of that name."""
        module: nn.Module = self._whole.get_submodule(target)
        return module

    def sam(self, pixels: Tensor) -> Tensor:
        """Run the vendor's SAM."""
        out: Tensor = self._core.sam_model(pixels)
        return out

    def clip(self, sam: Tensor) -> Tensor:
        """Run the vendor's CLIP on SAM's features; it reads only the batch size from the pixel argument."""
        out: Tensor = self._core.vision_model(sam, sam)
        return out

    def projector(self, clip: Tensor, sam: Tensor) -> Tensor:
        """Run the vendor's projector on CLIP's features beside SAM's."""
        out: Tensor = self._core.projector(beside(clip, sam))
        return out

    def embed(self, input_ids: Tensor) -> Tensor:
        """Look ids up in the vendor's table."""
        out: Tensor = self._core.embed_tokens(input_ids)
        return out

    def new_cache(self) -> VendorCache:
        """Return an empty cache."""
        return VendorCache()

    def join_caches(self, caches: list[VendorCache]) -> VendorCache:
        """Refuse: the vendor's code decodes one page at a time."""
        raise DsocrError("the vendor's model decodes one page at a time; call run for each page")

    def decode(self, embeds: Tensor, cache: VendorCache, *, all_logits: bool = False) -> Tensor:
        """Run the vendor's decoder on ``[1, T, C]``: the forward that its OCR model inherits."""
        start = cache.length
        decoder: Any = super(type(self._core), self._core)
        out = decoder.forward(
            inputs_embeds=embeds,
            past_key_values=self._cache_object(cache),
            position_ids=torch.arange(start, start + embeds.shape[1], device=embeds.device)[None],
            use_cache=True,
            return_dict=True,
        )
        cache.past = out.past_key_values
        hidden = out.last_hidden_state
        logits: Tensor = self._whole.lm_head(hidden if all_logits else hidden[:, -1:])
        return logits.float()

    def _cache_object(self, cache: VendorCache) -> Any:
        if cache.past is None:
            from transformers import DynamicCache

            cache.past = DynamicCache()
        return cache.past
