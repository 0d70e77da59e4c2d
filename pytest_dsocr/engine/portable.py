"""A checkpoint in the form that other projects' loaders want: a text and a row for every id, merges, whole configs.

Tokens and what the model computes from them stay the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pytest_dsocr.contract.special import BOS, EOS, PAD
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.places import folder_of
from pytest_dsocr.engine.vocabulary import BYTE_SYMBOLS
from pytest_dsocr.engine.weights import read_weights, save_weights
from pytest_dsocr.foundation.errors import DsocrError

TABLES = ("model.embed_tokens.weight", "lm_head.weight")
"""What has a row for every id, ``[V, C]``."""
NEVER_SEEN = BYTE_SYMBOLS[:9]
"""Control characters; two of them in a row stand in no prompt."""
PROCESSOR = {
    "processor_class": "DeepseekVLV2Processor",
    "candidate_resolutions": [[1024, 1024]],
    "patch_size": 16,
    "downsample_ratio": 4,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "normalize": True,
    "image_token": "<image>",
    "pad_token": PAD,
    "add_special_token": False,
    "sft_format": "deepseek",
    "mask_prompt": False,
    "ignore_id": -100,
}
"""What the vendor's ``processor_config.json`` says."""


def write_portable(checkpoint: str | Path, folder: Path) -> None:
    """Write ``checkpoint`` to a new ``folder``, in the form of the published one.

    Ids without a text get one that no prompt holds, and ids without rows the rows of such an id, or of the pad token,
    so that they are never chosen before it.

    Raises:
        DsocrError: where it has no files to start from, or ``folder`` holds weights already.
    """
    source = folder_of(checkpoint)
    state, vocabulary = read_weights(source), _json(source / "tokenizer.json")
    texts = _texts(vocabulary)
    gaps = [token_id for token_id in range(max(texts) + 1) if token_id not in texts]
    _fill(vocabulary["model"], gaps, {*texts.values()})
    dead = gaps[0] if gaps else next(token_id for token_id, text in texts.items() if text == PAD)
    state |= {name: _with_rows(state[name], max(texts) + 1, dead) for name in TABLES}
    save_weights(state, folder)
    architecture = Architecture.from_folder(source).to_config()
    sizes = {"vocab_size": len(state[TABLES[0]])}
    dtype = {"torch_dtype": str(state[TABLES[0]].dtype).removeprefix("torch.")}
    language = {**architecture["language_config"], **sizes, **dtype}
    config = {**architecture, **sizes, **dtype, "language_config": language}
    special = {"bos_token": BOS, "eos_token": EOS, "pad_token": PAD}
    files = {
        "config.json": config,
        "tokenizer.json": vocabulary,
        "tokenizer_config.json": {**_json(source / "tokenizer_config.json"), **special},
        "special_tokens_map.json": special,
        "processor_config.json": PROCESSOR,
    }
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _texts(vocabulary: Mapping[str, Any]) -> dict[int, str]:
    """Give the text of each id that has one."""
    own = {int(token_id): str(text) for text, token_id in vocabulary["model"]["vocab"].items()}
    return own | {int(token["id"]): str(token["content"]) for token in vocabulary["added_tokens"]}


def _fill(model: dict[str, Any], gaps: list[int], taken: set[str]) -> None:
    """Give texts to ids without one, and a merge where there is none; the text of a gap is all that it ever joins."""
    free = _unseen(taken)
    for token_id in gaps:
        first, second = next(free)
        model["vocab"][first + second] = token_id
        if not model["merges"]:
            model["merges"] = [f"{first} {second}"]


def _unseen(taken: set[str]) -> Iterator[tuple[str, str]]:
    return ((a, b) for a, b in product(NEVER_SEEN, NEVER_SEEN) if a + b not in taken)


def _with_rows(table: Tensor, rows: int, dead: int) -> Tensor:
    """Give a table ``[V, C]`` with at least ``rows`` rows, those at its end as that of a token that is never chosen."""
    return torch.cat([table, *[table[dead : dead + 1]] * (rows - len(table))])


def _json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DsocrError(f"{path} cannot be read ({error}); give a checkpoint's whole folder") from error
    return found
