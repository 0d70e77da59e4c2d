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
from msgspec import Meta
from torch import Tensor

from pytest_dsocr.contract.prompt import BOS, EOS, PAD
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.places import architecture_of, folder_of
from pytest_dsocr.engine.tokenizer import BYTE_SYMBOLS
from pytest_dsocr.engine.weights import read_weights, save_weights
from pytest_dsocr.foundation.files import write_whole
from pytest_dsocr.foundation.reading import Format


def write_checkpoint(
    folder: Path, arch: Architecture, state: Mapping[str, Tensor], vocabulary: tokenizers.Tokenizer
) -> None:
    """Write config, weights in their dtype, and tokenizer, as the published checkpoint has them.

    Raises:
        DsocrError: where ``folder`` holds weights already.
    """
    save_weights(state, folder)
    write_whole(folder / "tokenizer.json", vocabulary.to_str(pretty=True).encode())
    described = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
    _write_json(folder / "tokenizer_config.json", {**described, "clean_up_tokenization_spaces": False})
    dtype = str(next(iter(state.values())).dtype).removeprefix("torch.")
    _write_json(folder / "config.json", {**arch.to_config(), "torch_dtype": dtype})


def _write_json(path: Path, value: dict[str, Any]) -> None:
    write_whole(path, (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode())


TABLE = "lm_head.weight"
"""What has a row for every id, ``[V, C]``, as ``model.embed_tokens.weight`` does."""
NEVER_SEEN = BYTE_SYMBOLS[:9]
"""Control characters; two of them in a row stand in no prompt."""


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

    Rows without a text get one that no prompt holds. Texts without a row, which no model can read, are left out:
    loaders refuse an id beyond the table, or make it longer than that of the recordings.

    Raises:
        DsocrError: where it has no files to start from, or ``folder`` holds weights already.
    """
    source = folder_of(checkpoint)
    state, vocabulary = read_weights(source), VOCABULARY.read(source / "tokenizer.json")
    _fit(vocabulary, len(state[TABLE]))
    save_weights(state, folder)
    architecture = architecture_of(checkpoint)
    published = architecture.to_config()
    dtype = {"torch_dtype": str(state[TABLE].dtype).removeprefix("torch.")}
    language = {**published["language_config"], **dtype}
    config = {**published, **dtype, "language_config": language}
    special = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
    files = {
        "config.json": config,
        "tokenizer.json": vocabulary,
        "tokenizer_config.json": {**OBJECT.read(source / "tokenizer_config.json"), **special},
        "special_tokens_map.json": special,
        "processor_config.json": dict(architecture.family.vendor.published["processor"]),
    }
    for name, value in files.items():
        write_whole(folder / name, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def _fit(vocabulary: _Vocabulary, rows: int) -> None:
    """Drop texts of ids from ``rows`` on, give one to each gap, and a merge where there is none.

    The text of a gap is all that it ever joins.
    """
    model = vocabulary["model"]
    model["vocab"] = {text: token_id for text, token_id in model["vocab"].items() if token_id < rows}
    vocabulary["added_tokens"] = [token for token in vocabulary["added_tokens"] if token["id"] < rows]
    texts = {token_id: text for text, token_id in model["vocab"].items()}
    texts |= {token["id"]: token["content"] for token in vocabulary["added_tokens"]}
    taken = {*texts.values()}
    free = ((a, b) for a, b in product(NEVER_SEEN, NEVER_SEEN) if a + b not in taken)
    for token_id in sorted({*range(max(texts))} - {*texts}):
        first, second = next(free)
        model["vocab"][first + second] = token_id
        if not model["merges"]:
            model["merges"] = [f"{first} {second}"]
