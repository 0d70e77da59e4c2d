"""Synthetic models as checkpoint folders."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.model import EngineModel
from pytest_dsocr.engine.places import DEFAULT_SEED
from pytest_dsocr.engine.portable import write_checkpoint
from pytest_dsocr.engine.synthetic import fill
from pytest_dsocr.engine.tokenizer import Tokenizer, byte_level_vocabulary
from pytest_dsocr.layers.attention import attention_function, eager
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr import FAMILY as DEEPSEEK_OCR
from pytest_dsocr.models.deepseek_ocr.model import DeepseekOCR
from pytest_dsocr.models.spec import ModelSpec, load
from tests.sizes import SYNTHETIC


def write_synthetic(
    name: str,
    folder: Path,
    dtype: torch.dtype = torch.bfloat16,
    seed: int = DEFAULT_SEED,
    family: ModelSpec = DEEPSEEK_OCR,
    factors: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Write ``synthetic:name`` with config, weights and tokenizer; ``factors`` multiply weights, by name."""
    arch = _sized(name, family)
    kind: type[EngineModel] = load(family.model)
    model = kind.empty(arch, eager, torch.device("cpu"), dtype)
    fill(model, seed)
    state = model.state_dict()
    for weights, factor in factors.items():
        state[weights] *= factor
    write_checkpoint(folder, arch, state, byte_level_vocabulary(arch.decoder.vocab_size))


def _sized(name: str, family: ModelSpec) -> Architecture:
    """Return the sizes of ``synthetic:name`` of a model; a model with the same encoder has DeepSeek-OCR's."""
    if family.encoder is DEEPSEEK_OCR.encoder:
        return replace(SYNTHETIC[name], family=family)
    encoder, decoder = family.synthetic[name]
    return Architecture(family, encoder, decoder)


def synthetic_engine(
    family: ModelSpec, kind: type[DeepseekOCR] = DeepseekOCR, attention: str = "eager", **decoder: Any
) -> Engine[Any]:
    """Load ``synthetic:tiny`` as a model of ``family``, its decoder of other sizes."""
    arch = replace(SYNTHETIC["tiny"], family=family, decoder=replace(SYNTHETIC["tiny"].decoder, **decoder))
    model = kind.empty(arch, attention_function(attention), torch.device("cpu"), torch.float32)
    fill(model)
    if kind is not DeepseekOCR:
        model.stack_experts()
    return Engine(model, Tokenizer.byte_level(arch.decoder.vocab_size), instrument="off")
