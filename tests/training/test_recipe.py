"""The recipe trains: the loss falls, a run goes on where it ended, and what is written loads and reads a page."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ci.training.__main__ import main
from ci.training.recipe import STATE, Recipe, Training, train
from ci.training.rows import Page, Pages
from ci.training.typeset import typeset
from pytest_dsocr.engine.architecture import Architecture
from pytest_dsocr.engine.engine import Engine
from pytest_dsocr.engine.places import MINI_FOLDER, SYNTHETIC
from pytest_dsocr.foundation.errors import DsocrError

STEPS = 10
CPU = torch.device("cpu")


def same_page(seed: int, words: Sequence[str]) -> Page:
    """One page, whatever the seed: soon learned by heart."""
    return typeset(11, words)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny architecture with mini's tokenizer."""
    folder = tmp_path_factory.mktemp("small")
    tiny = SYNTHETIC["tiny"]
    vocabulary = Architecture.from_folder(MINI_FOLDER).decoder.vocab_size
    arch = replace(tiny, sam=replace(tiny.sam, layers=2, global_attn_indexes=(1,)))
    arch = replace(arch, decoder=replace(arch.decoder, vocab_size=vocabulary))
    (folder / "config.json").write_text(json.dumps(arch.to_config()), encoding="utf-8")
    (folder / "tokenizer.json").write_bytes((MINI_FOLDER / "tokenizer.json").read_bytes())
    return folder


def test_it_trains_goes_on_and_writes_what_reads(small: Path, tmp_path: Path) -> None:
    presets = ("tiny",)
    recipe = Recipe(small, same_page, STEPS, batch_pages=1, presets=presets, learning_rate=1e-2, warmup_steps=2)
    first, out = Training(recipe, CPU), tmp_path / "training"
    begun = {name: parameter.detach().clone() for name, parameter in first.model.named_parameters()}
    [line, *_] = train(first, out, minutes=0, workers=0)
    assert line.startswith(f"step 1 of {STEPS}: answer 7.")
    training = Training(recipe, CPU)
    training.resume(out)
    assert training.step == 1
    *_, last = train(training, out, minutes=5, workers=0)
    assert last.startswith(f"step {STEPS} of {STEPS}: answer ")
    assert float(last.partition("answer ")[2].partition(",")[0]) < 4.5

    unused = "model.vision_model.embeddings.patch_embedding.weight"  # CLIP is fed by SAM
    still = {name for name, p in training.model.named_parameters() if torch.equal(p, begun[name])}
    assert still == {unused}, "every other part learns"

    training.export(tmp_path / "checkpoint")
    session = Engine.from_checkpoint(str(tmp_path / "checkpoint"))
    result = session.run(same_page(0, ("harbor", "zebra")).image, preset="tiny", max_new_tokens=12)
    assert len(result.token_ids) == 12
    assert result.text
    with pytest.raises(DsocrError):
        training.export(tmp_path / "checkpoint")


def test_the_command_trains_and_writes(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ci.training.typeset.SIZES_PT", {"small": (280.0, 280.0)})  # seen without crops
    checkpoint = tmp_path / "checkpoint"
    how = ["--device=cpu", "--steps=1", "--batch=1", "--workers=0", f"--export={checkpoint}"]
    assert main([str(tmp_path), f"--like={small}", *how]) == 0
    trained, written = capsys.readouterr().out.splitlines()
    assert trained.startswith("step 1 of 1: answer ")
    assert written == f"written {checkpoint}"


def test_vision_is_asked_for_words_and_experts_are_balanced(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ci.training.rows.READABLE_PX", 512)
    training = Training(Recipe(small, typeset, batch_pages=1, presets=("tiny",)), CPU)
    found = training.losses(Pages(typeset, small / "tokenizer.json", 1, ("tiny",))[0])
    assert 6 < found["words"].item() < 9
    assert 1 <= found["imbalance"].item() < 2
    found["words"].backward()
    assert training.model.model.sam_model.get_parameter("pos_embed").grad is not None
    assert training.model.model.layers[0].get_parameter("mlp.down_proj.weight").grad is None


@pytest.mark.parametrize("what", ["pages", "training", "folder"])
def test_bad_input_is_2(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    (tmp_path / STATE).write_bytes(b"torn")
    how = {"pages": ["--pages=nowhere:made"], "training": [], "folder": [f"--like={tmp_path}"]}[what]
    assert main([str(tmp_path), f"--like={small}", "--device=cpu", *how]) == 2
    assert capsys.readouterr().err.startswith("training: ")
