"""The evaluation as its users run it, on random weights: what it reads, says, writes and refuses."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from multiprocessing import spawn
from pathlib import Path

import pytest
import torch

from ci.training import evaluate, reading, truth
from ci.training.generator import generate
from ci.training.reading import PROMPTS, Reading, Source, each, held_out, judge, open_page, read, truth_of
from ci.training.seeds import FIRST_TRAINING_SEED, HELD_OUT_SEEDS
from pytest_dsocr.engine.session import Session
from pytest_dsocr.foundation.errors import DsocrError
from pytest_dsocr.pages import page_list

TOKENS = 12
SMALL = ("--checkpoint", "synthetic:tiny", "--preset", "tiny")


@pytest.fixture(autouse=True)
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CEILING", TOKENS)


def test_held_out_pages_are_none_of_the_trainings() -> None:
    assert list(held_out(3)) == [0, 1, 2]
    assert held_out(len(HELD_OUT_SEEDS))[-1] < FIRST_TRAINING_SEED


@pytest.mark.parametrize("count", [0, -1, 10_001])
def test_counts_of_pages_that_there_are_not(count: int) -> None:
    with pytest.raises(DsocrError, match="give 1 to 10000"):
        held_out(count)


def test_a_seed_is_a_page_of_the_generator() -> None:
    name, page = open_page(7)
    assert name == f"{page.kind}-7"
    assert page.image.tobytes() == generate(7).image.tobytes()


def test_the_truth_is_what_the_prompt_asks_for() -> None:
    page = generate(3)
    grounded, free = (truth_of(page, prompt) for prompt in PROMPTS)
    assert [span.label for span in grounded.spans] == [block.label for block in page.blocks]
    assert (free.spans, free.preamble) == ((), page.answer(grounded=False))


def test_a_reading_is_held_against_the_truth_and_timed() -> None:
    session = Session.from_checkpoint("synthetic:tiny", instrument="timed")
    found = read(session, 5, prompt="markdown", preset="tiny")
    assert found.quality.true_boxes == sum(len(block.rects) for block in generate(5).blocks)
    assert (len(found.token_ids), found.quality.ended) == (TOKENS, False)
    assert found.text == session.tokenizer.decode(found.token_ids).strip()
    assert min(found.stage_ms[stage] for stage in ("sam", "prefill", "decode")) > 0
    assert 2**26 < found.peak_bytes < 2**36, "bytes, not KiB"


def perfect(checkpoint: str, source: Source, *, prompt: str, preset: str) -> Reading:
    """Read as a model would that makes no mistake."""
    name, page = open_page(source)
    result = evaluate.timed_session(checkpoint).run(page.image, prompt=prompt, preset=preset, max_new_tokens=1)
    truth = truth_of(page, prompt)
    return judge(name, replace(result, markup=truth, finish_reason="eos"), truth)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_perfect_model_meets_every_aim(prompt: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(evaluate, "_read", perfect)
    assert evaluate.main([*SMALL, "--pages", "3", "--prompt", prompt, "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "quality.json").read_text(encoding="utf-8"))
    met = {key: figure["meets_aim"] for key, figure in written["figures"].items() if figure["aim"] is not None}
    not_measured = dict.fromkeys(("iou", "labels", "title_errors")) if prompt == "free" else {}
    assert met == {**dict.fromkeys(met, True), **not_measured}


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_command_says_and_writes_what_it_found(
    prompt: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new"
    assert evaluate.main([*SMALL, "--pages", "2", "--prompt", prompt, "--out", str(out)]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert lines[:2] == [
        "model       synthetic:tiny, float32 on the CPU",
        f"pages       2 held out, tiny, prompt {prompt}",
    ]
    assert any(line.startswith("seconds") and "vision 0." in line and "decode 0." in line for line in lines)
    assert lines[-1] == f"written     {out / 'quality.json'}"
    assert said.err == "", "no progress bar where there is no terminal"
    written = json.loads((out / "quality.json").read_text(encoding="utf-8"))
    assert (written["checkpoint"], written["prompt"], written["preset"]) == ("synthetic:tiny", prompt, "tiny")
    assert [page["output_tokens"] for page in written["pages"]] == [TOKENS, TOKENS]
    assert [page["page"] for page in written["pages"]] == [open_page(seed)[0] for seed in (0, 1)]
    stages = [page["stage_ms"] for page in written["pages"]]
    vision = sum(ms for of_page in stages for stage, ms in of_page.items() if stage in evaluate.VISION)
    assert written["seconds_a_page"]["vision"] == pytest.approx(vision / 2000) != 0
    assert sum(written["seconds_a_page"].values()) == pytest.approx(sum(map(sum, map(dict.values, stages))) / 2000)
    whole = sum(len(text) for seed in (0, 1) for text in _texts(seed, prompt))
    assert written["figures"]["text_errors"]["whole"] == whole


def _texts(seed: int, prompt: str) -> list[str]:
    page = generate(seed)
    if prompt == "free":
        return [page.answer(grounded=False)]
    return [block.text for block in page.blocks if block.label not in ("title", "sub_title")]


def test_a_shipped_subset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = generate(8)
    page.image.save(tmp_path / "one.png")
    (tmp_path / "one.json").write_text(json.dumps(truth.truth_of(page)), encoding="utf-8")
    (tmp_path / "typeset.txt").write_text("one.png\n", encoding="utf-8")
    monkeypatch.setattr(page_list, "PAGES", tmp_path)
    monkeypatch.setattr(evaluate, "_read", perfect)
    assert evaluate.main([*SMALL, "--subset", "typeset", "--out", str(tmp_path)]) == 0
    written = json.loads((tmp_path / "quality.json").read_text(encoding="utf-8"))
    assert written["subset"] == "typeset"
    assert [(page["page"], page["true_boxes"]) for page in written["pages"]] == [
        ("one", sum(len(block.rects) for block in page.blocks))
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--subset", "other"], "there is no subset 'other'"),
        (["--checkpoint", "nowhere"], "'nowhere' is no checkpoint; give mini"),
        (["--pages", "0"], "0 held-out pages cannot be drawn"),
        (["--jobs", "0"], "0 jobs read nothing"),
    ],
)
def test_bad_input_is_a_sentence_and_status_2(
    arguments: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate.main([*SMALL, "--pages", "1", "--out", str(tmp_path), *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"dsocr: {complaint}")
    assert list(tmp_path.iterdir()) == []


def threads(source: int | Path) -> tuple[int | Path, int]:
    return source, torch.get_num_threads()


def test_jobs_share_the_threads_and_keep_the_order(warm: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "_python_exe", os.fsencode(sys.executable))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    assert list(each(threads, [4, 3, 2], jobs=1)) == [(4, 6), (3, 6), (2, 6)]
    assert list(each(threads, [4, 3, 2], jobs=2)) == [(4, 3), (3, 3), (2, 3)]
