"""Synthetic models as checkpoint folders."""

from pathlib import Path

import torch

from pytest_dsocr.engine.attention import eager
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.places import DEFAULT_SEED, SYNTHETIC
from pytest_dsocr.engine.portable import write_checkpoint
from pytest_dsocr.engine.synthetic import fill
from pytest_dsocr.engine.tokenizer import byte_level_vocabulary


def write_synthetic(name: str, folder: Path, dtype: torch.dtype = torch.bfloat16, seed: int = DEFAULT_SEED) -> None:
    """Write ``synthetic:name`` with config, weights and tokenizer."""
    arch = SYNTHETIC[name]
    model = DeepseekOCR.empty(arch, eager, torch.device("cpu"), dtype)
    fill(model, seed)
    write_checkpoint(folder, arch, model.state_dict(), byte_level_vocabulary(arch.decoder.vocab_size))
