"""Probe of a key-value cache: its positions, its bytes, and whether earlier positions were rewritten."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from pytest_dsocr.base.exact_types import to_builtin
from pytest_dsocr.base.words import shown
from pytest_dsocr.records.config import SubjectFaultError
from pytest_dsocr.subjects.calls import at_stage

if TYPE_CHECKING:
    from torch import Tensor

    from pytest_dsocr.engine.protocol import CacheView
    from pytest_dsocr.records.subject_result import KvSize
    from pytest_dsocr.subjects.protocol import DecodeView

HASH_BYTES = 8
DIMENSIONS, MOST_LAYERS = 4, 100_000
CacheKind = Literal["keys", "values"]
KINDS: tuple[CacheKind, ...] = get_args(CacheKind)


class CachePlace(NamedTuple):
    """A position of a layer's keys or of its values."""

    layer: int
    kind: CacheKind
    position: int

    def __str__(self) -> str:
        return f"layer {self.layer}'s {self.kind} at position {self.position}"


@dataclass(frozen=True)
class KvDigest:
    """Hashes of a cache's contents, each of one position."""

    hashes: tuple[tuple[tuple[bytes, ...], tuple[bytes, ...]], ...]
    """By layer the hashes of its keys and of its values, by position."""

    def changed(self, later: KvDigest) -> tuple[CachePlace, ...]:
        """Return every position here that ``later`` has changed or lost; by layer, keys first."""
        return tuple(
            CachePlace(layer, kind, position)
            for layer, pair in enumerate(self.hashes)
            for kind, actual, expected in zip(KINDS, pair, later._of(layer), strict=True)
            for position, content in enumerate(actual)
            if position >= len(expected) or content != expected[position]
        )

    def slid(self, later: KvDigest, first: int) -> bool:
        """Return whether ``later`` dropped position ``first``, moved all after it forward, and appended one."""
        pairs = [(kind, later._of(layer)[k]) for layer, pair in enumerate(self.hashes) for k, kind in enumerate(pair)]
        return bool(pairs) and all(
            len(moved) == len(held) > first and moved[:-1] == held[:first] + held[first + 1 :] for held, moved in pairs
        )

    def _of(self, layer: int) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        return self.hashes[layer] if layer < len(self.hashes) else ((), ())


@dataclass(frozen=True, eq=False)
class KvProbe:
    """Looks into the cache of a state of decoding, as it stands at each call.

    It trusts no count that the cache keeps of itself: lengths and bytes are those of the tensors that it shows.
    """

    state: DecodeView

    @property
    def lengths(self) -> tuple[tuple[int, int], ...]:
        """Positions of each layer's keys and of its values."""
        return tuple((keys.shape[2], values.shape[2]) for keys, values in self.layers)

    @property
    def bytes_per_token(self) -> int:
        """Bytes of one position, keys and values of all layers."""
        return sum(t.shape[0] * t.shape[1] * t.shape[3] * t.element_size() for pair in self.layers for t in pair)

    @property
    def size(self) -> KvSize:
        """Layers, and bytes of one position."""
        from pytest_dsocr.records.subject_result import KvSize

        return KvSize(len(self.layers), self.bytes_per_token)

    @property
    def itemsize(self) -> int:
        """Bytes of one number, of the widest tensor."""
        return max(t.element_size() for pair in self.layers for t in pair)

    def digest(self, positions: int | None = None) -> KvDigest:
        """Hash the contents of the first ``positions``, or of all that there are, to the bit."""
        layers = self.layers
        with at_stage("decode", "cache"):  # a device may fail
            return KvDigest(tuple((_hashes(keys, positions), _hashes(values, positions)) for keys, values in layers))

    @property
    def layers(self) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of each layer, ``[B, G, S, D]``, on the subject's own memory."""
        with at_stage("decode", "cache"):
            cache, layers = self.state.cache, to_builtin(self.state.cache.layers)
            if type(layers) is not int or not 0 < layers <= MOST_LAYERS:
                raise _fault(f"cache.layers is {shown(layers)}; give their number")
            return [(_part(cache, "keys", layer), _part(cache, "values", layer)) for layer in range(layers)]


def _part(cache: CacheView, kind: CacheKind, layer: int) -> Tensor:
    """Return a layer's keys or values ``[B, G, S, D]``, on the subject's own memory."""
    from pytest_dsocr.subjects.checked import viewed

    part = viewed("decode", f"cache.{kind}({layer}) gave", kind, getattr(cache, kind)(layer))
    if part.ndim != DIMENSIONS:
        raise _fault(f"cache.{kind}({layer}) gave a tensor of shape {list(part.shape)}; give [B, G, S, D]")
    return part


def _fault(what: str) -> SubjectFaultError:
    return SubjectFaultError("decode", f"the subject's {what}, as pytest_dsocr.engine.protocol.CacheView has it")


def _hashes(tensor: Tensor, positions: int | None) -> tuple[bytes, ...]:
    """Hash each position of ``[B, G, S, D]``."""
    import torch

    rows = tensor[:, :, :positions].detach().permute(2, 0, 1, 3).cpu().contiguous().flatten(1)
    return tuple(hashlib.blake2b(row, digest_size=HASH_BYTES).digest() for row in rows.view(torch.uint8).numpy())
