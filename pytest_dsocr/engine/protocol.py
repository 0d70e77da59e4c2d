"""Protocols of a model and of its cache for the engine: the engine's own, and the vendor's through an adapter.

Shapes: B rows, T tokens, S positions, C hidden channels, V vocabulary, N views, h x w vision tokens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from pytest_dsocr.models.spec import ModelSpec


class CacheView(Protocol):
    """Keys and values of the positions computed so far."""

    @property
    def length(self) -> int:
        """Number of positions of the longest row."""

    @property
    def layers(self) -> int:
        """Number of layers."""

    def keys(self, layer: int) -> Tensor:
        """Return a layer's keys, ``[B, G, S, D]``."""

    def values(self, layer: int) -> Tensor:
        """Return a layer's values, ``[B, G, S, D]``."""


class Cache(CacheView, Protocol):
    """Methods of a cache that the engine needs, in addition to a view of it."""

    def drop_last(self) -> None:
        """Forget the last position of every row."""


CacheT = TypeVar("CacheT", bound=Cache)


class OcrModel(Protocol[CacheT]):
    """Stages of the model, each callable separately. Both models derive from it; their parts have the same names."""

    model: Any
    """Everything but the head, its parts under the vendor's names."""
    lm_head: Any

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.lm_head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' dtype."""
        return self.lm_head.weight.dtype

    @property
    def family(self) -> ModelSpec:
        """Family of the model, which has a method for each stage that views go through."""

    @property
    def newline(self) -> Tensor:
        """Vector that ends each row of vision tokens, ``[C]``."""
        found: Tensor = getattr(self.model, self.family.newline)
        return found

    @property
    def separator(self) -> Tensor:
        """Vector that ends an image, ``[C]``."""
        found: Tensor = getattr(self.model, self.family.separator)
        return found

    @property
    def max_position_embeddings(self) -> int | None:
        """The model's own limit of positions, where its config has one."""

    def get_submodule(self, target: str) -> nn.Module:
        """Return the module that the vendor calls ``target``; raise ``AttributeError`` if there is none."""

    def embed(self, input_ids: Tensor) -> Tensor:
        """Look up ``[B, T]`` ids: ``[B, T, C]``."""
        return self.model.embed_tokens(input_ids)

    def new_cache(self) -> CacheT:
        """Return an empty cache for one row."""

    def join_caches(self, caches: list[CacheT]) -> CacheT:
        """Put single rows' caches side by side; raise ``DsocrError`` where batches are not supported."""

    def decode(self, embeds: Tensor, cache: CacheT, *, all_logits: bool = False) -> Tensor:
        """Run the decoder on ``[B, T, C]``, growing ``cache`` by T.

        Gives float32 logits of the last token ``[B, 1, V]``, or of all ``[B, T, V]``.
        """
