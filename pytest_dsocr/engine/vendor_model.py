"""The vendor's own model object in the engine's stages: an NVTX engine around the vendor's classes.

``Engine(vendor_model(model), Tokenizer.wrap(tokenizer))`` is all you need. The object is used unchanged. Its
``forward``, which runs vision and decoder in one, is not called: the stages are called instead.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.engine.protocol import OcrModel
from pytest_dsocr.models import model_of_class
from pytest_dsocr.models.spec import ModelSpec, load


class VendorCache:
    """The cache object that the vendor's decoder fills (``transformers``' ``DynamicCache``)."""

    def __init__(self) -> None:
        from transformers import DynamicCache

        self.past: Any = DynamicCache()
        self.seen = 0
        """Number of tokens so far: the next one's position."""

    @property
    def length(self) -> int:
        """Number of positions."""
        return int(self.past.get_seq_length())

    @property
    def layers(self) -> int:
        """Number of layers."""
        return len(self.past.key_cache)

    def keys(self, layer: int) -> Tensor:
        """Return a layer's keys, ``[B, G, S, D]``."""
        return self.past.key_cache[layer]

    def values(self, layer: int) -> Tensor:
        """Return a layer's values, ``[B, G, S, D]``."""
        return self.past.value_cache[layer]

    def drop_last(self) -> None:
        """Forget the last position."""
        self.past.crop(self.length - 1)
        self.seen -= 1


def vendor_model(model: Any) -> VendorModel:
    """Return what runs the stages of the vendor's object; takes and raises what :class:`VendorModel` does."""
    found: VendorModel = load(model_of_class(type(model)).vendor.model)(model)
    return found


class VendorModel(OcrModel[VendorCache]):
    """A vendor's ``...ForCausalLM``. A subclass has a method for each of the encoder's stages.

    Args:
        model: the vendor's object in evaluation mode, however it was loaded.
    """

    def __init__(self, model: Any) -> None:
        family = model_of_class(type(model))
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
        self._whole, self.model, self.lm_head = model, model.model, model.lm_head
        if family.cache.ring is not None:  # infer does this; otherwise its decoder attends to all
            config = model.config
            config._ring_window = getattr(config, "sliding_window_size", None) or config.sliding_window
            config.sliding_window = None

    @classmethod
    def check(cls, model: Any) -> None:
        """Raise ``DsocrError`` if the vendor's object is no reference in this environment; by default, do nothing."""

    @property
    def family(self) -> ModelSpec:
        """The family by the class of the vendor's object."""
        return model_of_class(type(self._whole))

    @property
    def max_position_embeddings(self) -> int | None:
        """The limit of positions in the vendor's config."""
        return getattr(self._whole.config, "max_position_embeddings", None)

    def get_submodule(self, target: str) -> nn.Module:
        """Return one of the vendor's modules; raise ``AttributeError`` if there is none with that name."""
        return self._whole.get_submodule(target)

    def new_cache(self) -> VendorCache:
        """Return an empty cache."""
        return VendorCache()

    def join_caches(self, caches: list[VendorCache]) -> VendorCache:
        """Refuse: the vendor's code decodes one page at a time."""
        raise DsocrError("the vendor's model decodes one page at a time; call run for each page")

    def decode(self, embeds: Tensor, cache: VendorCache, *, all_logits: bool = False) -> Tensor:
        """Run the vendor's decoder on ``[1, T, C]``: the forward that its OCR model inherits."""
        start = cache.seen
        decoder: Any = super(type(self.model), self.model)
        out = decoder.forward(
            inputs_embeds=embeds,
            past_key_values=cache.past,
            position_ids=torch.arange(start, start + embeds.shape[1], device=embeds.device)[None],
            use_cache=True,
            return_dict=True,
        )
        cache.past = out.past_key_values
        cache.seen += embeds.shape[1]
        hidden = out.last_hidden_state
        return self.lm_head(hidden if all_logits else hidden[:, -1:]).float()
