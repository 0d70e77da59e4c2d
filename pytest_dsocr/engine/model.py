"""Parts shared by the models of all vendors: the decoder, its cache and its head, under the vendor's names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn

from pytest_dsocr.base.errors import MachineError
from pytest_dsocr.base.words import si
from pytest_dsocr.engine.protocol import OcrModel
from pytest_dsocr.layers.attention import AttentionFunction
from pytest_dsocr.layers.cache import KVCache
from pytest_dsocr.layers.decoder import DecoderLayer, LmHead
from pytest_dsocr.layers.experts import MixtureOfExperts
from pytest_dsocr.layers.norms import RmsNorm
from pytest_dsocr.layers.rotary import Rope, Rotary, inverse_frequencies
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.spec import PREFILL, ModelSpec, load


class EngineModel(nn.Module, OcrModel[KVCache]):
    """A decoder with its head. A subclass adds an encoder, and a method for each of its stages.

    The weights are uninitialised memory until a checkpoint is loaded. They load with ``strict=True``.
    """

    model: Core
    lm_head: LmHead

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.arch = arch
        self.model = self.core(arch)
        self.lm_head = LmHead(arch.decoder.hidden_size, arch.decoder.vocab_size, bias=False)

    def core(self, arch: Architecture) -> Core:
        """Return everything but the head that computes logits."""
        return Core(arch)

    @classmethod
    def empty(
        cls,
        arch: Architecture,
        attend: AttentionFunction,
        device: torch.device,
        dtype: torch.dtype,
        *,
        round_rope: bool = True,
    ) -> Self:
        """Allocate a model without weights on ``device``, in evaluation mode.

        ``round_rope`` rounds the rotary frequencies to ``dtype``, as the vendor's documented
        ``model.to(torch.bfloat16)`` does; a model loaded in bf16 from the start keeps them in float32.
        """
        with torch.device("meta"):  # nothing is computed there: that imports torch's compiler, which takes a second
            model = cls(arch)
        _give_memory(model.to(dtype), device)
        model.requires_grad_(False).eval()
        for module in model.modules():
            if isinstance(module, Rotary):
                frequencies = inverse_frequencies(module.rotary)
                module.inv_freq = (frequencies.to(dtype) if round_rope else frequencies).to(device)
        for layer in model.model.decoder_layers():
            layer.self_attn.attend = attend
        return model

    @property
    def family(self) -> ModelSpec:
        """The model's family."""
        return self.arch.family

    @property
    def max_position_embeddings(self) -> int | None:
        """The limit of positions in the checkpoint's config."""
        return self.arch.decoder.max_position_embeddings

    def new_cache(self) -> KVCache:
        """Return an empty cache for one row."""
        return KVCache(self.arch.decoder.num_hidden_layers, policy=self.family.cache)

    def join_caches(self, caches: Sequence[KVCache]) -> KVCache:
        """Put single rows' caches side by side."""
        return KVCache.join(caches)

    def decode(self, embeds: Tensor, cache: KVCache, *, all_logits: bool = False) -> Tensor:
        """Run the decoder on ``[B, T, C]``, growing ``cache`` by T; float32 logits ``[B, 1 or T, V]``."""
        hidden = self.model.decode(embeds, cache)
        return self.lm_head(hidden if all_logits else hidden[:, -1:])

    def block_arguments(self, stage: str, x_BTC: Tensor) -> tuple[Any, ...]:
        """Return what the blocks of a stage take besides ``x_BTC``: in prefill, rotary positions and an empty cache."""
        if stage != PREFILL:
            return ()
        cache = self.new_cache()
        return Rope(self.model.inv_freq, cache.positions(x_BTC.shape[1], x_BTC.device), x_BTC.dtype), cache

    def stack_experts(self) -> None:
        """Lay the experts' weights out so that a decode step does not wait for the device."""
        for layer in self.model.decoder_layers():
            if isinstance(layer.mlp, MixtureOfExperts):
                layer.mlp.stack()


def _give_memory(model: EngineModel, device: torch.device) -> None:
    """Allocate uninitialised memory for a model without memory.

    ``to_empty`` does the same, but imports sympy to find out the layout of a tensor.
    """
    try:
        model._apply(lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device=device))  # type: ignore[no-untyped-call]
    except RuntimeError as error:  # a CPU's allocator has no error of its own kind
        size = si(sum(tensor.nbytes for tensor in model.parameters()))
        raise MachineError(
            f"{device} has no memory for weights of {size}B; name another device, or fix config.json"
        ) from error


def model_class(arch: Architecture) -> type[EngineModel]:
    """Return the readable model of an architecture's family."""
    return load(arch.family.model)


def weights_bytes(arch: Architecture, dtype: torch.dtype) -> int:
    """Return the bytes of a model's weights; none are allocated."""
    with torch.device("meta"):
        model = model_class(arch)(arch)
    return sum(one.numel() for one in model.parameters()) * dtype.itemsize


class Core(Rotary):
    """The decoder, to whose modules a model adds those of its encoder."""

    def __init__(self, arch: Architecture) -> None:
        config = arch.decoder
        super().__init__(config)
        self.embed_tokens = nn.Embedding.from_pretrained(torch.empty(config.vocab_size, config.hidden_size))
        self.layers = nn.ModuleList(DecoderLayer(config, index) for index in range(config.num_hidden_layers))
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        for name in arch.family.vectors:
            self.register_parameter(name, nn.Parameter(torch.empty(config.hidden_size)))

    def decode(self, x_BTC: Tensor, cache: KVCache) -> Tensor:
        """Run the layers on ``[B, T, C]`` and normalise."""
        new = x_BTC.shape[1]
        rope = Rope(self.inv_freq, cache.positions(new, x_BTC.device), x_BTC.dtype)
        for layer in self.layers:
            x_BTC = layer(x_BTC, rope, cache)
        cache.advance(new)
        return self.norm(x_BTC)

    def decoder_layers(self) -> list[DecoderLayer]:
        """Return the decoder's layers, with their type."""
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]
