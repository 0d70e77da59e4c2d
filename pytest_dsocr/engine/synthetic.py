"""Models without a download: weights that follow from a seed and a tensor's name alone.

The stream is Philox's raw words, which numpy keeps the same for ever; all that follows is exact or rounded once to
float32 and once to the model's dtype. So a tensor has the same bytes on every machine, device and torch version. On a
GPU the words are computed there.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pytest_dsocr.base.errors import DsocrError
from pytest_dsocr.base.process import in_threads
from pytest_dsocr.engine.model import model_class
from pytest_dsocr.engine.philox import WORDS_PER_BLOCK, random_words
from pytest_dsocr.engine.places import DEFAULT_SEED
from pytest_dsocr.engine.weights import OnBytes
from pytest_dsocr.models.architecture import Architecture

CHUNK_WORDS = 1 << 18
VALUES_PER_WORD = 4
VALUES_PER_BLOCK = WORDS_PER_BLOCK * VALUES_PER_WORD
BLOCKS_AT_ONCE = 1 << 21
"""Blocks of words that a device computes together, with some 400 MB of memory."""
FINGERPRINT_VALUES = 256
ROOT_OF_12 = math.sqrt(12)
EMBEDDINGS = (
    "embed_tokens.weight",
    "newline",
    "seperator",
    "class_embedding",
    "query_768.weight",
    "query_1024.weight",
    "position_embedding.weight",
    "pos_embed",
)
SHARPENED = ("q_proj.weight", "k_proj.weight", "mlp.gate.weight")
"""Attention and routing are made to choose: with values of one unit they would average over everything."""


def fill(model: nn.Module, seed: int = DEFAULT_SEED, on_progress: OnBytes | None = None) -> None:
    """Fill every parameter of ``model`` with the values that ``seed`` and the parameter's name determine."""
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}
    total_bytes = sum(parameter.nbytes for parameter in parameters.values())
    done_bytes = 0

    def fill_one(name: str) -> int:
        parameter = parameters[name]
        _fill_one(parameter.view(-1), name, parameter.shape, seed)
        return parameter.nbytes

    is_on_cpu = all(parameter.device.type == "cpu" for parameter in parameters.values())
    for n_bytes in in_threads(fill_one, parameters) if is_on_cpu else fill_on_device(parameters, seed):
        done_bytes += n_bytes
        if on_progress:
            on_progress(done_bytes, total_bytes)


@cache
def synthetic_fingerprint(arch: Architecture, seed: int) -> str:
    """Return a SHA-256 that identifies these weights: of each tensor's shape and first values."""
    digest = hashlib.sha256()
    with torch.device("meta"):
        parameters = dict(model_class(arch)(arch).named_parameters())
    for name, parameter in parameters.items():
        first = torch.empty(min(parameter.numel(), FINGERPRINT_VALUES))
        _fill_one(first, name, parameter.shape, seed)
        digest.update(f"{name} {list(parameter.shape)} ".encode() + first.numpy().astype("<f4").tobytes())
    return digest.hexdigest()


def spread(name: str, shape: Sequence[int]) -> tuple[float, float]:
    """Return the mean and the standard deviation of the values of one tensor.

    The values make a lively model: activations neither vanish nor explode, attention prefers some tokens, and experts
    differ. The content of the page decides the output.

    Raises:
        DsocrError: if ``name`` is of no known kind.
    """
    per_input = 1 / math.sqrt(math.prod(shape[1:]))
    if name.endswith("bias"):
        return 0.0, 0.1
    if name.endswith("weight") and len(shape) == 1:
        return 1.0, 0.1
    if name.endswith(("rel_pos_h", "rel_pos_w")):
        return 0.0, per_input
    if name.endswith(EMBEDDINGS):
        return 0.0, 0.5
    if name.endswith(SHARPENED):
        return 0.0, 1.5 * per_input
    if name.endswith("weight"):
        return 0.0, per_input
    raise DsocrError(f"no synthetic values are defined for a tensor named {name}; extend spread()")


def fill_on_device(parameters: Mapping[str, Tensor], seed: int) -> Iterator[int]:
    """Fill tensors of one device by :mod:`~pytest_dsocr.engine.philox`; yield the bytes as they are done."""
    batch, left = list[_Piece](), BLOCKS_AT_ONCE
    for piece in _pieces(parameters):
        if piece.blocks > left:
            yield _fill_pieces(parameters, batch, seed)
            batch, left = [], BLOCKS_AT_ONCE
        batch.append(piece)
        left -= piece.blocks
    yield _fill_pieces(parameters, batch, seed)


class _Piece(NamedTuple):
    """Blocks of one tensor that are computed together."""

    name: str
    first: int
    blocks: int


def _pieces(parameters: Mapping[str, Tensor]) -> Iterator[_Piece]:
    for name, parameter in parameters.items():
        blocks = -(-parameter.numel() // VALUES_PER_BLOCK)
        for first in range(0, blocks, BLOCKS_AT_ONCE):
            yield _Piece(name, first, min(BLOCKS_AT_ONCE, blocks - first))


def _fill_pieces(parameters: Mapping[str, Tensor], pieces: Sequence[_Piece], seed: int) -> int:
    names, first, blocks = zip(*pieces, strict=True)
    words = random_words([_key(name, seed) for name in names], first, blocks, parameters[names[0]].device)
    done_bytes = 0
    for piece, own in zip(pieces, words.split(blocks), strict=True):
        parameter, start = parameters[piece.name], piece.first * VALUES_PER_BLOCK
        part = parameter.view(-1)[start : start + own.numel() * VALUES_PER_WORD]
        part.copy_(_values(own.view(torch.int16).flatten()[: len(part)], piece.name, parameter.shape))
        done_bytes += part.nbytes
    return done_bytes


def _fill_one(flat: Tensor, name: str, shape: Sequence[int], seed: int) -> None:
    """Fill the beginning of the tensor ``name`` of ``shape``, or all of it."""
    words = np.random.Philox(key=_key(name, seed))
    for chunk in flat.split(CHUNK_WORDS * VALUES_PER_WORD):
        raw = words.random_raw(-(-len(chunk) // VALUES_PER_WORD)).astype("<u8", copy=False).view("<i2")
        chunk.copy_(_values(torch.from_numpy(raw)[: len(chunk)], name, shape).to(flat.dtype))


def _key(name: str, seed: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:16], "little")


def _values(words: Tensor, name: str, shape: Sequence[int]) -> Tensor:
    """Turn random numbers of 16 bits into values of a tensor."""
    mean, std = spread(name, shape)
    return words.float().add_(0.5).mul_(float(np.float32(std * ROOT_OF_12 / (1 << 16)))).add_(mean)
