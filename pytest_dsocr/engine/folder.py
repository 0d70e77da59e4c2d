"""A model as a checkpoint folder that other programs can read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from torch import Tensor

from pytest_dsocr.contract.special import BOS, EOS, PAD
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.weights import save_weights
from pytest_dsocr.foundation.files import write_whole


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
