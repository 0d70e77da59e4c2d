"""The recipe computes what the engine does, takes steps in which every weight learns, and writes what loads."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

from ci.training.__main__ import main
from ci.training.generator import generate
from ci.training.network import arrange, decode, encode, fold, resampling, views_of
from ci.training.quality import changes
from ci.training.recipe import Recipe, Training
from ci.training.rows import Pages
from ci.training.start import begin
from pytest_dsocr.contract.markup import parse
from pytest_dsocr.contract.prompt import EOS
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

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def arch() -> Architecture:
    """Return a tiny architecture with mini's vocabulary."""
    sam = SamConfig(
        width=8, layers=1, heads=1, global_attn_indexes=(), neck_channels=8, downsample_channels=(8, 32), mlp_ratio=1
    )
    decoder = replace(
        Architecture.from_folder(MINI_FOLDER).decoder,
        hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2,
        n_routed_experts=4, moe_intermediate_size=8,
    )  # fmt: skip
    tower = TowerConfig(dim=32, layers=2, heads=4, key_value_heads=2, intermediate_size=32)
    return Architecture(MODELS["deepseek_ocr2"], DeepEncoder2.of(sam, tower), decoder)


def test_a_batch_gives_the_engines_tokens_and_logits(arch: Architecture) -> None:
    model = model_class(arch).empty(arch, sdpa, CPU, torch.float32)
    begin(model, {}, 1)
    pages = Pages(arch.family, 1, free_share=0, blind_share=0)
    batch = pages.batch([20_001], arch.family.preset("gundam"), (2, 2))
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


def test_the_whole_output_is_asked_and_words_are_named_where_they_stand(arch: Architecture) -> None:
    pages = Pages(arch.family, 1, free_share=0, blind_share=0)
    batch = pages.batch([20_001], arch.family.preset("gundam"), (2, 2))
    _, height, width, _ = batch.pages.shape
    page = generate(20_001, pages.words, (2, 2), (width, height))
    output = page.output(grounded=True)
    asked = torch.cat([batch.text_at, batch.number_at]).sort().values + 1
    assert pages.backend.decode(batch.ids[0, asked].tolist(), skip_special_tokens=False) == output + EOS
    boxes = [box for span in parse(output, arch.family.form).spans for box in span.boxes]
    assert batch.number.tolist() == [edge for box in boxes for edge in (box.x1, box.y1, box.x2, box.y2)]

    words = [word for block in page.blocks for word in block.words]
    assert len(words) > 5
    first = [pages.backend.decode([one]).strip() for one in batch.word.tolist()]
    assert all(word.text.startswith(one) for word, one in zip(words, first, strict=True))
    middles = [((one.rect.x1 + one.rect.x2) / 2 / width, (one.rect.y1 + one.rect.y2) / 2 / height) for one in words]
    tokens = torch.arange(4 * 144).view(2, 2, 12, 12).transpose(1, 2).reshape(24, 24)  # four crops, side by side
    assert batch.word_at.tolist() == [int(tokens[int(y * 24), int(x * 24)]) for x, y in middles]


def test_queries_begin_as_copies_of_their_places(arch: Architecture) -> None:
    model = model_class(arch).empty(arch, sdpa, CPU, torch.float32)
    begin(model, {}, 1)
    image = torch.randn(1, 32, 12, 12, generator=torch.Generator().manual_seed(1))
    tokens = image.flatten(2).transpose(1, 2)
    read = model.get_submodule("model.qwen2_model")(image)
    near, far = (
        torch.cosine_similarity(read[:, :, 2:], one[:, :, 2:], dim=-1).mean()
        for one in (tokens, tokens.roll(1, dims=1))
    )
    assert near > far + 0.3


def test_the_towers_tokens_need_each_of_its_parts(arch: Architecture) -> None:
    model, tower = model_class(arch).empty(arch, sdpa, CPU, torch.float32), "model.qwen2_model"
    begin(model, {}, 1)
    image = torch.randn(1, 32, 12, 12, generator=torch.Generator().manual_seed(1))
    whole, needed = model.get_submodule(tower)(image), []
    for name, change in changes(model):
        without = deepcopy(model)
        change(without)
        if not torch.equal(without.get_submodule(tower)(image), whole):
            needed.append(name.removeprefix(f"{tower}."))
    parts = ("norm removed", "mask causal", "mask open", "layers.0 removed", "layers.1 removed")
    assert needed == ["query_768.weight zero", *(f"model.model.{part}" for part in parts)]


def test_every_weight_learns(arch: Architecture) -> None:
    training = Training(Recipe(arch, batch_pages=1, learning_rate=1e-2, warmup_steps=1), CPU)
    begun = {name: one.detach().clone() for name, one in training.model.named_parameters()}
    batch = Pages(arch.family, 1, blind_share=0).batch([20_001], arch.family.preset("gundam"), (2, 1))
    found = [training.look(training.learn(batch))["loss"] for _ in range(2)]
    assert found[1] < found[0]
    assert not [name for name, one in training.model.named_parameters() if torch.equal(one, begun[name])]


def test_a_checkpoint_is_trained_with_a_teacher(
    arch: Architecture, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    teacher, config, out = tmp_path / "teacher", tmp_path / "teacher" / "config.json", tmp_path / "out"
    training = Training(Recipe(arch), CPU)
    training.model.get_parameter("model.projector.layers.weight").data *= 2
    training.save(teacher)
    short = ["--minutes=1e-6", "--batch-pages=1", "--workers=0", "--device=cpu"]
    assert main([str(out), f"--config={config}", f"--teacher={teacher}", *short]) == 0
    step = capsys.readouterr().out
    assert step.startswith("step 1 (")
    assert "apart 0.250" in step  # the teacher's tokens are twice as large
    begun, written = read_weights(teacher), read_weights(out)
    assert {name: one.shape for name, one in written.items()} == {name: one.shape for name, one in begun.items()}
    assert {one.dtype for one in written.values()} == {torch.bfloat16}
    assert Architecture.from_folder(out) == arch


def test_a_line_is_resized_by_weights_that_sum_to_one() -> None:
    weights = resampling(100, 30, CPU)
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(30))
    torch.testing.assert_close(weights.flip(0, 1), weights)
