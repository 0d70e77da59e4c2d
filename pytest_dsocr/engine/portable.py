"""A model as a checkpoint folder that other programs read, and in the form that other projects' loaders want.

The portable form has a text for every row, merges, and whole configs; weights, tokens, and what the model computes from
them, stay the same.
"""

import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Annotated, Any, TypedDict

import tokenizers
import torch
from msgspec import Meta
from torch import Tensor

from pytest_dsocr.base.files import write_whole
from pytest_dsocr.base.reading import Format
from pytest_dsocr.contract.prompt import BOS, EOS, PAD
from pytest_dsocr.engine.model import model_class
from pytest_dsocr.engine.places import architecture_of, folder_of, synthetic
from pytest_dsocr.engine.synthetic import fill
from pytest_dsocr.engine.tokenizer import BYTE_SYMBOLS, byte_level_vocabulary
from pytest_dsocr.engine.weights import read_weights, save_weights
from pytest_dsocr.layers.attention import eager
from pytest_dsocr.models.architecture import Architecture

SPECIAL = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
TOKENIZER = {"tokenizer_class": "PreTrainedTokenizerFast"}


def write_checkpoint(
    folder: Path, arch: Architecture, state: Mapping[str, Tensor], vocabulary: tokenizers.Tokenizer
) -> None:
    """Write config, weights in their dtype, and tokenizer, as the published checkpoint has them.

    Raises:
        DsocrError: if ``folder`` already has weights.
    """
    save_weights(state, folder)
    write_whole(folder / "tokenizer.json", vocabulary.to_str(pretty=True).encode())
    _write_json(folder / "tokenizer_config.json", {**TOKENIZER, **SPECIAL, "clean_up_tokenization_spaces": False})
    dtype = str(next(iter(state.values())).dtype).removeprefix("torch.")
    _write_json(folder / "config.json", {**arch.to_config(), "torch_dtype": dtype})


def _write_json(path: Path, value: dict[str, Any]) -> None:
    write_whole(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


TABLE = "lm_head.weight"
"""Tensor with a row for every id, ``[V, C]``; ``model.embed_tokens.weight`` is another."""
NEVER_SEEN = BYTE_SYMBOLS[:9]
"""Control characters; no prompt contains two of them in a row."""


Id = Annotated[int, Meta(ge=0, lt=2**24)]


class _Model(TypedDict):
    vocab: dict[str, Id]
    merges: list[Any]


class _Added(TypedDict):
    id: Id
    content: str


class _Vocabulary(TypedDict):
    model: _Model
    added_tokens: list[_Added]


WHOLE = "give a checkpoint's whole folder"
VOCABULARY, OBJECT = Format(_Vocabulary, WHOLE), Format(dict[str, Any], WHOLE)


def write_portable(checkpoint: str | Path, folder: Path) -> None:
    """Write ``checkpoint`` to a new ``folder``, in the form of the published one.

    Rows without a text get one that no prompt contains. Texts without a row, which no model can read, are left out:
    loaders refuse an id beyond the table, or make the table longer than that of the recordings.

    Raises:
        DsocrError: if it has no files to start from, or ``folder`` already has weights.
    """
    architecture, state, vocabulary, described = _made(checkpoint) or _read(checkpoint)
    _fit(vocabulary, len(state[TABLE]))
    save_weights(state, folder)
    published = architecture.to_config()
    dtype = {"torch_dtype": str(state[TABLE].dtype).removeprefix("torch.")}
    language = {**published["language_config"], **dtype}
    config = {**published, **dtype, "language_config": language}
    files = {
        "config.json": config,
        "tokenizer.json": vocabulary,
        "tokenizer_config.json": {**described, **SPECIAL},
        "special_tokens_map.json": SPECIAL,
        "processor_config.json": dict(architecture.family.vendor.published["processor"]),
    }
    for name, value in files.items():
        write_whole(folder / name, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


_Source = tuple[Architecture, Mapping[str, Tensor], _Vocabulary, Mapping[str, Any]]


def _read(checkpoint: str | Path) -> _Source:
    folder = folder_of(checkpoint)
    vocabulary, described = VOCABULARY.read(folder / "tokenizer.json"), OBJECT.read(folder / "tokenizer_config.json")
    return architecture_of(checkpoint), read_weights(folder), vocabulary, described


def _made(checkpoint: str | Path) -> _Source | None:
    """Return a synthetic checkpoint, in float32; None of any other."""
    if not (known := synthetic(str(checkpoint))):
        return None
    architecture, seed = known
    model = model_class(architecture).empty(architecture, eager, torch.device("cpu"), torch.float32)
    fill(model, seed)
    vocabulary = byte_level_vocabulary(architecture.decoder.vocab_size)
    return architecture, model.state_dict(), json.loads(vocabulary.to_str()), TOKENIZER


def _fit(vocabulary: _Vocabulary, rows: int) -> None:
    """Drop texts of ids from ``rows`` on, add one for each gap, and a merge if there is none.

    The text of a gap is all that its merge ever joins.
    """
    model = vocabulary["model"]
    model["vocab"] = {text: token_id for text, token_id in model["vocab"].items() if token_id < rows}
    vocabulary["added_tokens"] = [token for token in vocabulary["added_tokens"] if token["id"] < rows]
    texts = {token_id: text for text, token_id in model["vocab"].items()}
    texts |= {token["id"]: token["content"] for token in vocabulary["added_tokens"]}
    taken = {*texts.values()}
    free = ((a, b) for a, b in product(NEVER_SEEN, NEVER_SEEN) if a + b not in taken)
    gaps = (token_id for token_id in range(max(texts, default=0)) if token_id not in texts)
    for token_id, (first, second) in zip(gaps, free, strict=False):
        model["vocab"][first + second] = token_id
        if not model["merges"]:
            model["merges"] = [f"{first} {second}"]
