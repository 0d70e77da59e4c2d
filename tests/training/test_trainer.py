"""The training in small: it learns, goes on where it was saved, and becomes a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ci.training import trainer as trainer_module
from ci.training.batch import Batch, on_device
from ci.training.network import forward
from ci.training.recipe import Schedule
from ci.training.trainer import MASTER_FILES, MASTERS, OPTIMISER, SAVING, STATE, Trainer, export
from pytest_dsocr.engine.session import Session
from pytest_dsocr.engine.weights import read_headers
from pytest_dsocr.foundation.errors import DsocrError
from tests.conftest import model_of
from tests.training.small import (
    QUICK,
    SCHEDULE,
    contract_batch,
    draw,
    engine_logits,
    relative_error,
    small_architecture,
)

CPU = torch.device("cpu")
FAST = replace(SCHEDULE, peak_learning_rate=1e-2, warmup_steps=1, steps=1000)
DECODER = ("lm_head.", "model.layers.", "model.norm.", "model.embed_tokens.")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "architecture", small_architecture)


@pytest.fixture(scope="module")
def batch() -> Batch:
    return on_device(draw("tiny", (1, 1)), CPU)


@pytest.fixture(scope="module")
def read_batch() -> Batch:
    """One of a view that is large enough for words to be asked of its tokens."""
    return on_device(draw("base", (1, 1), range(5, 6)), CPU)


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: master.detach().clone() for name, master in trainer.masters.items()}


def changed(before: dict[str, Tensor], trainer: Trainer) -> set[str]:
    return {name for name, master in trainer.masters.items() if not torch.equal(master, before[name])}


def trained(schedule: Schedule, batch: Batch, steps: int) -> Trainer:
    trainer = Trainer(schedule, CPU)
    for _ in range(steps):
        trainer.learn(batch)
    return trainer


def test_a_batch_that_is_seen_again_costs_less(batch: Batch) -> None:
    trainer = Trainer(FAST, CPU)
    losses = [trainer.learn(batch) for _ in range(12)]
    first, last = (of_answer.total().item() for of_answer, _ in (losses[0], losses[-1]))
    assert last < 0.7 * first
    assert losses[-1][1].layout < losses[0][1].layout
    assert trainer.step == 12


def test_a_step_changes_every_parameter_and_what_computes_follows_the_masters(read_batch: Batch) -> None:
    trainer = Trainer(FAST, CPU)
    before = weights(trainer)
    _, of_vision = trainer.learn(read_batch)
    assert of_vision.words > 0
    still = set(before) - changed(before, trainer)
    assert {name.split(".attn.")[-1] for name in still} <= {
        "model.vision_model.embeddings.patch_embedding.weight", "rel_pos_h", "rel_pos_w"
    }  # fmt: skip
    assert "model.vision_model.embeddings.patch_embedding.weight" in still, "CLIP is fed by SAM"
    computing = dict(trainer.model.named_parameters())
    assert all(torch.equal(computing[name], trainer.masters[name]) for name in computing)
    assert {name.removeprefix("heads.") for name in trainer.masters.keys() - computing.keys()} == {
        name for name, _ in trainer.heads.named_parameters()
    }


def test_the_rate_is_the_schedules(batch: Batch) -> None:
    schedule = replace(SCHEDULE, warmup_steps=50)
    trainer = trained(schedule, batch, 2)
    rates = {group["lr"] for group in trainer.optimiser.param_groups}
    assert rates == {schedule.learning_rate(1, 1)} != {schedule.learning_rate(0, 0)}


def test_matrices_decay_and_norms_biases_and_embeddings_do_not() -> None:
    trainer = Trainer(SCHEDULE, CPU)
    decays = {id(p): group["weight_decay"] for group in trainer.optimiser.param_groups for p in group["params"]}
    found = {name: decays.pop(id(master)) for name, master in trainer.masters.items()}
    assert not decays
    assert set(found.values()) == {0.0, SCHEDULE.weight_decay}
    for part in ("embed_tokens", "pos_embed", "position_embedding", "norm", "bias", "image_newline"):
        assert {decay for name, decay in found.items() if part in name} == {0.0}
    for part in ("q_proj.weight", "gate.weight", "experts", "rel_pos", "lm_head", "net_3", "heads.layout.weight"):
        assert {decay for name, decay in found.items() if part in name} == {SCHEDULE.weight_decay}


def test_gradients_are_clipped(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = Trainer(SCHEDULE, CPU)
    norms: list[float] = []
    step = trainer.optimiser.step

    def watch() -> None:
        norms.append(float(torch.stack([p.grad.norm() for p in trainer.masters.values() if p.grad is not None]).norm()))
        step()

    monkeypatch.setattr(trainer.optimiser, "step", watch)
    trainer.learn(batch)
    assert norms == [pytest.approx(SCHEDULE.gradient_norm, rel=1e-3)]


def test_a_rehearsal_is_of_the_decoder_alone(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trained(FAST, batch, 1)
    before = weights(trainer)
    trainer._rehearse()
    found = changed(before, trainer)
    assert found
    assert all(name.startswith(DECODER) for name in found)
    assert {name.split(".")[2] for name in found if ".layers." in name} == {"0", "1", "2"}
    monkeypatch.setattr(trainer, "_rehearse", lambda: None)
    trainer.learn(batch)
    assert any("sam_model" in name for name in changed(before, trainer))


def test_rehearsals_come_when_the_schedule_says_from_a_pool_that_is_bounded(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule = replace(SCHEDULE, courses=((0, 1), (2, 1)), rehearsals=2, pool_batches=2)
    trainer, steps = Trainer(schedule, CPU), list[int]()
    monkeypatch.setattr(trainer, "_rehearse", lambda: steps.append(trainer.step))
    for _ in range(4):
        trainer.learn(batch)
    assert steps == [2, 2, 3, 3]
    assert len(trainer._pool) == 2
    assert not any(vision.requires_grad for vision, _ in trainer._pool)


@pytest.mark.parametrize("steps", [1, 3])
def test_a_saved_training_goes_on_to_the_bit(steps: int, batch: Batch, tmp_path: Path) -> None:
    schedule = replace(SCHEDULE, warmup_steps=5, courses=((0, 4), (100, 2)))
    trainer = trained(schedule, batch, steps)
    trainer.save(tmp_path)
    again = Trainer.open(tmp_path, schedule, CPU)
    assert again.step == steps
    ours, theirs = trainer.learn(batch), again.learn(batch)
    assert torch.equal(ours[0].total(), theirs[0].total())
    assert torch.equal(ours[1].total(1), theirs[1].total(1))
    assert not changed(weights(trainer), again)


def test_without_its_optimiser_a_training_is_warmed_up_again(batch: Batch, tmp_path: Path) -> None:
    schedule = replace(SCHEDULE, steps=1000, warmup_steps=4)
    trained(schedule, batch, 3).save(tmp_path)
    (tmp_path / OPTIMISER).unlink()
    again = Trainer.open(tmp_path, schedule, CPU)
    again.learn(batch)
    assert again.optimiser.param_groups[0]["lr"] == schedule.learning_rate(3, 0) < schedule.learning_rate(3, 3)


def test_a_training_is_saved_over_the_last_one_whole_or_not_at_all(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = trained(SCHEDULE, batch, 1)
    trainer.save(tmp_path)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(files) == {STATE, OPTIMISER, *(MASTERS.format(n) for n in range(MASTER_FILES))}
    trainer.learn(batch)

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(OSError, match="no space"):
            trainer.save(tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == files
    trainer.save(tmp_path)
    assert not (tmp_path / SAVING).exists()
    assert Trainer.open(tmp_path, SCHEDULE, CPU).step == 2


def test_an_empty_folder_is_a_new_training(tmp_path: Path) -> None:
    trainer = Trainer.open(tmp_path / "new", SCHEDULE, CPU)
    assert trainer.step == 0
    assert not changed(weights(Trainer(SCHEDULE, CPU)), trainer)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:1000])


def without_one(path: Path) -> None:
    save_file(dict(list(load_file(path).items())[1:]), path)


def of_another_shape(path: Path) -> None:
    parts = load_file(path)
    name = next(name for name, part in parts.items() if part.dim() == 1)
    save_file({**parts, name: parts[name][:1].clone()}, path)


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        (MASTERS.format(1), cut),
        (MASTERS.format(2), Path.unlink),
        (MASTERS.format(0), without_one),
        (MASTERS.format(0), of_another_shape),
        (OPTIMISER, cut),
        (OPTIMISER, lambda path: path.write_bytes(b"")),
        (OPTIMISER, lambda path: path.write_text("no pickle")),
        (STATE, lambda path: path.write_text("{")),
        (STATE, lambda path: path.write_text("[]")),
        (STATE, lambda path: path.write_text("{}")),
        (STATE, lambda path: path.write_text('{"step": null}')),
    ],
)
def test_a_damaged_training_is_refused(file: str, damage: Callable[[Path], object], tmp_path: Path) -> None:
    Trainer(SCHEDULE, CPU).save(tmp_path)
    damage(tmp_path / file)
    with pytest.raises(DsocrError, match=r"holds no training of this model \([^\n]+\); give another folder$"):
        Trainer.open(tmp_path, SCHEDULE, CPU)


def test_the_checkpoint_of_a_training_says_what_it_said(batch: Batch, tmp_path: Path) -> None:
    trainer = trained(FAST, batch, 2)
    trainer.save(tmp_path / "training")
    export(tmp_path / "training", tmp_path / "checkpoint")
    stored = read_headers(tmp_path / "checkpoint")
    assert {tensor.dtype for tensor in stored.values()} == {"BF16"}
    assert set(stored) == {name for name in trainer.masters if not name.startswith("heads.")}
    config = json.loads((tmp_path / "checkpoint" / "config.json").read_text(encoding="utf-8"))
    assert config["torch_dtype"] == "bfloat16"
    session, batch = Session.from_checkpoint(str(tmp_path / "checkpoint")), contract_batch(range(5, 6), QUICK, (2, 1))
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            parameter.copy_(parameter.bfloat16())
        logits = trainer.model.lm_head(forward(trainer.model, trainer.encode, batch).hidden[0])
    expected = engine_logits(model_of(session), 5, QUICK, (2, 1), batch.asked.ids[0])
    assert relative_error(logits, expected) < 1e-3


def test_a_checkpoint_is_not_written_of_nothing_nor_over_another(tmp_path: Path) -> None:
    with pytest.raises(DsocrError, match=r"holds no training; run: python -m ci\.training\.train"):
        export(tmp_path, tmp_path / "checkpoint")
    Trainer(SCHEDULE, CPU).save(tmp_path)
    export(tmp_path, tmp_path / "checkpoint")
    with pytest.raises(DsocrError, match="holds weights already"):
        export(tmp_path, tmp_path / "checkpoint")
