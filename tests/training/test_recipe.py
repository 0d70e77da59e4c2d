"""The recipe computes what the engine does, takes steps in which every weight learns, and writes what loads."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from ci.training.__main__ import main
from ci.training.network import arrange, decode, encode, fold, resampling, views_of
from ci.training.recipe import Recipe, Training
from ci.training.rows import Pages
from ci.training.start import align_queries, begin
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.model import model_class
from pytest_dsocr.engine.places import MINI_FOLDER
from pytest_dsocr.engine.tokenizer import Tokenizer
from pytest_dsocr.engine.weights import read_weights
from pytest_dsocr.layers.attention import sdpa
from pytest_dsocr.layers.sizes import SamConfig
from pytest_dsocr.models import MODELS
from pytest_dsocr.models.architecture import Architecture
from pytest_dsocr.models.deepseek_ocr2.sizes import DeepEncoder2, TowerConfig

TOKENIZER = MINI_FOLDER / "tokenizer.json"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def arch() -> Architecture:
    """Return a tiny architecture with mini's vocabulary."""
    sam = SamConfig(
        width=8, layers=2, heads=1, global_attn_indexes=(), neck_channels=8, downsample_channels=(8, 32), mlp_ratio=1
    )
    decoder = replace(
        Architecture.from_folder(MINI_FOLDER).decoder,
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        n_routed_experts=4, moe_intermediate_size=8,
    )  # fmt: skip
    tower = TowerConfig(dim=32, layers=1, heads=4, key_value_heads=2, intermediate_size=32)
    return Architecture(MODELS["deepseek_ocr2"], DeepEncoder2.of(sam, tower), decoder)


def test_a_batch_gives_the_engines_tokens_and_logits(arch: Architecture) -> None:
    model = model_class(arch).empty(arch, sdpa, CPU, torch.float32)
    begin(model, {}, 1)
    pages = Pages(arch.family, TOKENIZER, 1, free_share=0, blind_share=0)
    batch = pages.batch([20_001], arch.family.preset("gundam"), (2, 1))
    engine = Engine(model, Tokenizer.from_folder(MINI_FOLDER), instrument="off")
    inputs = engine.prepare(Image.fromarray(batch.pages[0].numpy()))
    state, prompt = engine.prefill(inputs, all_logits=True), inputs.prompt_tokens
    assert state.all_logits is not None
    assert inputs.input_ids[0].tolist() == batch.ids[0, :prompt].tolist()
    with torch.no_grad():
        crops, wholes = views_of(batch)
        own = arrange(fold(model), batch, encode(model, crops), encode(model, wholes))
        logits = model.lm_head(decode(model, batch.ids, own)[0])
    torch.testing.assert_close(own[0], state.visions[0].vision_fusion, atol=0.02, rtol=0)
    torch.testing.assert_close(logits[0, :prompt], state.all_logits[0], atol=0.01, rtol=0)

    output = pages.backend.decode(batch.ids[0, prompt:].tolist(), skip_special_tokens=False)
    assert parse(output.partition("<｜end")[0], arch.family.form).problems == ()
    assert len(batch.word) > 5
    assert len(batch.number) % 4 == 0


def test_queries_begin_as_copies_of_their_places(arch: Architecture) -> None:
    model = model_class(arch).empty(arch, sdpa, CPU, torch.float32)
    begin(model, {}, 1)
    align_queries(model.model.get_submodule("qwen2_model"))
    image = torch.randn(1, 32, 12, 12, generator=torch.Generator().manual_seed(1))
    tokens = image.flatten(2).transpose(1, 2)
    near = torch.cosine_similarity(model.qwen2(image)[:, :, 2:], tokens[:, :, 2:], dim=-1).mean()
    far = torch.cosine_similarity(model.qwen2(image)[:, :, 2:], tokens.roll(1, dims=1)[:, :, 2:], dim=-1).mean()
    assert near > far + 0.3


def test_every_weight_learns_and_what_is_written_loads(arch: Architecture, tmp_path: Path) -> None:
    config, out, checkpoint = tmp_path / "config.json", tmp_path / "out", tmp_path / "checkpoint"
    config.write_text(json.dumps(arch.to_config()), encoding="utf-8")
    training = Training(Recipe(arch, TOKENIZER, MINI_FOLDER, batch_pages=1, learning_rate=1e-2, warmup_steps=1), CPU)
    begun = {name: value.clone() for name, value in training.state().items()}
    batch = Pages(arch.family, TOKENIZER, 1, blind_share=0).batch([20_001], arch.family.preset("gundam"), (2, 1))
    found = [training.look(training.learn(batch))["loss"] for _ in range(3)]
    assert found[2] < found[0]
    still = {name for name, value in training.state().items() if torch.equal(value, begun[name])}
    assert still == set()
    training.save(out)
    assert main([str(out), f"--config={config}", f"--export={checkpoint}"]) == 0
    written = read_weights(checkpoint)
    assert {name: tensor.shape for name, tensor in written.items()} == {n: v.shape for n, v in begun.items()}
    assert {tensor.dtype for tensor in written.values()} == {torch.bfloat16}
    assert Architecture.from_folder(checkpoint) == arch


def test_a_line_is_resized_by_weights_that_sum_to_one() -> None:
    weights = resampling(100, 30, CPU)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(30))
    torch.testing.assert_close(weights.flip(0, 1), weights)
