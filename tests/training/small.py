"""A recipe small enough to train on a CPU in a test, and batches for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import tokenizers
import torch
from torch import Tensor

from ci.training.batch import Batch, Drawn
from ci.training.feed import Kind, draw_batch
from ci.training.generator import generate
from ci.training.network import new_model
from ci.training.recipe import Schedule
from ci.training.vocabulary import mini_vocabulary, number_ids
from pytest_dsocr.contract.image import crops, global_view
from pytest_dsocr.contract.inputs import prepare_inputs
from pytest_dsocr.contract.presets import PRESETS, Grid, Preset
from pytest_dsocr.engine.architecture import Architecture, ClipConfig, DecoderConfig, SamConfig
from pytest_dsocr.engine.model import DeepseekOCR
from pytest_dsocr.engine.pipeline import Pipeline
from pytest_dsocr.engine.stages import Stages
from pytest_dsocr.engine.tokenizer import Tokenizer

BACKEND: tokenizers.Tokenizer = mini_vocabulary()
QUICK = Preset("quick", 256, 640, crop=True)
SCHEDULE = Schedule(steps=8, warmup_steps=2, courses=((0, 4), (4, 2)), batch_pages=2, pool_batches=2)


def small_architecture() -> Architecture:
    """Every kind of part, each as small as it can be."""
    return Architecture(
        SamConfig(
            width=16, layers=2, heads=2, global_attn_indexes=(1,), neck_channels=16, downsample_channels=(16, 16)
        ),
        ClipConfig(width=16, layers=1, heads=2),
        DecoderConfig(
            vocab_size=BACKEND.get_vocab_size(),
            hidden_size=32,
            intermediate_size=32,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=2,
            n_routed_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=16,
            max_position_embeddings=8192,
        ),
    )


def small_model(seed: int = 0) -> DeepseekOCR:
    """A model to train, none of whose parameters is zero."""
    model = new_model(small_architecture(), torch.tensor(number_ids(BACKEND)), seed)
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=random))
    return model


def kind(
    preset: Preset | str = "small", grid: Grid = (1, 1), *, level: float = 1.0, seeds: range = range(5, 7)
) -> Kind:
    return Kind(PRESETS[preset] if isinstance(preset, str) else preset, grid, level, seeds)


def draw(preset: Preset | str = "small", grid: Grid = (1, 1), seeds: range = range(5, 7)) -> Drawn:
    return draw_batch(kind(preset, grid, seeds=seeds), BACKEND)


def levels(images: list[np.ndarray], side: int) -> Tensor:
    views = torch.from_numpy(np.array(images, dtype=np.uint8)).reshape(-1, side, side, 3)
    return views.permute(0, 3, 1, 2)


def contract_batch(seeds: range, preset: Preset, grid: Grid) -> Batch:
    """Draw a batch whose views are the contract's."""
    asked = draw(preset, grid, seeds).asked
    pages = [generate(seed, grid=grid).image for seed in seeds]
    cut = grid if preset.crop else (1, 1)
    of_crops = [levels([np.array(crop) for crop in crops(page, cut)], 640) for page in pages]
    wholes = [np.array(global_view(page, preset)) for page in pages]
    return Batch(torch.stack(of_crops), levels(wholes, preset.view_size), cut, asked)


def engine_logits(engine: DeepseekOCR, seed: int, preset: Preset, grid: Grid, ids: Tensor) -> Tensor:
    """Give the engine's logits after every token of a row, its prompt and its answer."""
    inputs = prepare_inputs(generate(seed, grid=grid).image, "markdown", preset, Tokenizer.over(BACKEND))
    mask = torch.zeros(1, len(ids), dtype=torch.bool)
    mask[:, : inputs.prompt_tokens] = inputs.images_seq_mask
    inputs = replace(inputs, input_ids=ids[None], images_seq_mask=mask)
    state = Pipeline(engine, Stages(engine.device, "off"), autocast=False).prefill(inputs, all_logits=True)
    assert state.all_logits is not None
    return state.all_logits[0]


def relative_error(found: Tensor, expected: Tensor) -> float:
    """The largest difference, in units of the largest value that was expected."""
    return float((found - expected).detach().abs().max() / expected.detach().abs().max())
