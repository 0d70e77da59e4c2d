"""The command that trains: what it says, where it stops, and that nothing is lost."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from ci.training import feed, trainer
from ci.training import train as train_module
from ci.training.batch import Batch
from ci.training.progress import NUMBERS, PICTURE, Curve, smooth
from ci.training.train import main, train
from ci.training.trainer import MASTER_FILES, MASTERS, STATE
from pytest_dsocr.engine.checkpoint import resolve
from pytest_dsocr.foundation.errors import DsocrError
from tests.training.small import SCHEDULE, small_architecture

QUICK = replace(SCHEDULE, steps=3, batch_pages=1)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "architecture", small_architecture)
    monkeypatch.setattr(feed, "PRESET_SHARES", {"tiny": 1.0})
    monkeypatch.setattr(train_module, "LOG_EVERY", 2)


@pytest.fixture
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


def run(folder: Path, *, minutes: float = 9.0) -> list[str]:
    return list(train(folder, minutes=minutes, workers=0, device="cpu", schedule=QUICK))


def masters(folder: Path) -> dict[str, torch.Tensor]:
    return {name: part for n in range(MASTER_FILES) for name, part in load_file(folder / MASTERS.format(n)).items()}


@pytest.mark.usefixtures("no_matplotlib")
def test_a_run_says_what_it_reached_wrote_and_could_not_draw(tmp_path: Path) -> None:
    trained, written, curve = run(tmp_path)
    assert trained.startswith("trained     step 3 of 3: text ")
    assert trained.endswith("/999")
    assert written == f"written     {tmp_path}"
    assert curve == "curve       not drawn: the curve needs matplotlib; run: pip install 'pytest-dsocr[train]'"
    rows = [json.loads(line) for line in (tmp_path / NUMBERS).read_text(encoding="utf-8").splitlines()]
    assert [row["step"] for row in rows] == [2, 3]
    assert f"text {rows[-1]['text']:.2f}" in trained
    assert {"coordinates", "imbalance", "layout", "words_right", "coordinate_error"} <= rows[0].keys()


@pytest.mark.usefixtures("no_matplotlib")
def test_runs_that_are_cut_short_come_to_the_same_end(tmp_path: Path) -> None:
    run(tmp_path / "whole")
    steps = [run(tmp_path / "cut", minutes=0.0)[0] for _ in range(3)]
    assert [line.split(":")[0] for line in steps] == [f"trained     step {n} of 3" for n in (1, 2, 3)]
    whole, cut = masters(tmp_path / "whole"), masters(tmp_path / "cut")
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)


@pytest.mark.usefixtures("no_matplotlib")
def test_a_finished_training_has_nothing_left_to_do(tmp_path: Path) -> None:
    run(tmp_path)
    before = masters(tmp_path)
    assert run(tmp_path)[0] == "trained     step 3 of 3"
    assert all(torch.equal(before[name], after) for name, after in masters(tmp_path).items())


@pytest.mark.usefixtures("no_matplotlib")
def test_long_runs_are_saved_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_module, "SAVE_EVERY", 2)
    learn = trainer.Trainer.learn

    def killed(self: trainer.Trainer, batch: Batch) -> object:
        if self.step == 2:
            raise KeyboardInterrupt
        return learn(self, batch)

    monkeypatch.setattr(trainer.Trainer, "learn", killed)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path)
    assert json.loads((tmp_path / STATE).read_text(encoding="utf-8"))["step"] == 2


@pytest.mark.usefixtures("no_matplotlib")
def test_a_training_becomes_a_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path / "training")
    arguments = [str(tmp_path / "training"), "--export", str(tmp_path / "checkpoint")]
    assert main(arguments) == 0
    assert capsys.readouterr().out == f"written     {tmp_path / 'checkpoint'}\n"
    assert resolve(tmp_path / "checkpoint").architecture == small_architecture()
    assert main(arguments) == 2
    assert "holds weights already" in capsys.readouterr().err


def test_what_is_no_training_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / STATE).write_text("{}", encoding="utf-8")
    assert main([str(tmp_path), "--device", "cpu"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"dsocr: {tmp_path} holds no training of this model (")
    assert len(err.splitlines()) == 1


def test_a_device_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--device", "cuda:64"]) == 2
    assert "'cuda:64'" in capsys.readouterr().err


@pytest.mark.parametrize("written", [None, '{"step": 1, "te'])
def test_a_curve_that_cannot_be_read(written: str | None, tmp_path: Path) -> None:
    curve = Curve(tmp_path)
    if written:
        (tmp_path / NUMBERS).write_text(written, encoding="utf-8")
    with pytest.raises(DsocrError, match=r"curve\.jsonl cannot be read \(.+\); delete it, and train on"):
        curve.rows()


def test_a_curve_is_smoothed_from_its_first_point() -> None:
    assert smooth([2.0, 2.0, 12.0, 2.0]) == pytest.approx([2.0, 2.0, 3.0, 2.9])
    assert smooth([]) == []


def test_the_curve_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    line = run(tmp_path)[-1]
    assert line == f"curve       {tmp_path / PICTURE}"
    with Image.open(tmp_path / PICTURE) as picture:
        assert picture.size == (900, 500)
        assert len(picture.convert("RGB").getcolors(2**20) or ()) > 20
