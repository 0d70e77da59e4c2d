"""What rounding does: the tokens that differ and by how much, counted and told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor

from ci.training import precision
from ci.training.precision import Difference, Rounded, compare_page, main, table
from ci.training.truth import load_truth
from pytest_dsocr.engine.session import Session
from pytest_dsocr.pages.page_list import shipped

TOKENS = 6
[PAGE] = (page for page in shipped("dev-20") if page.stem == "figures_201")
LOGITS = [[0.0, 1.0, 2.0, 0.5], [0.0, 3.0, 1.0, 0.5], [9.0, 0.0, 0.0, 0.0]]


@pytest.fixture(autouse=True)
def few_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "CEILING", TOKENS)


def session(no_repeat: int = 0) -> Any:
    decode = {0: "<eos>", 1: "one", 2: "two", 3: "three"}
    return SimpleNamespace(
        policy=SimpleNamespace(no_repeat_ngram_size=no_repeat),
        tokenizer=SimpleNamespace(decode=lambda ids: decode[ids[0]]),
    )


def differences(tokens: Sequence[int], mine: list[list[float]], no_repeat: int = 0) -> list[Difference]:
    theirs = [torch.tensor(row) for row in LOGITS]
    return list(precision._differences(session(no_repeat), tokens, theirs, [torch.tensor(row) for row in mine]))


def test_equal_logits_differ_nowhere() -> None:
    assert differences([2, 1, 0], LOGITS) == []


def test_a_difference_has_its_step_its_texts_and_both_margins() -> None:
    other = [LOGITS[0], [0.0, 2.0, 1.0, 2.25], LOGITS[2]]
    assert differences([2, 1, 0], other) == [Difference(1, "one", "three", 2.5, 0.25)]


def test_a_choice_that_the_policy_bans_is_no_difference() -> None:
    other = [LOGITS[0], [0.0, 2.0, 2.25, 1.0], LOGITS[2]]
    assert [found.bfloat16 for found in differences([2, 1, 0], other)] == ["two"]
    assert differences([2, 1, 0], other, no_repeat=1) == []


def page(differing: Sequence[Difference], tokens: int, **same: bool) -> Rounded:
    return Rounded("page", tokens, tuple(differing), same["answer"], same["boxes"], margins=(1.0, 2.0, 3.0))


def test_the_table_adds_up() -> None:
    apart = [Difference(0, "a", "b", margin, 0.1) for margin in (0.1, 0.2, 0.9)]
    lines = list(table([page(apart[:2], 10, answer=False, boxes=True), page(apart[2:], 20, answer=True, boxes=True)]))
    assert lines == [
        "tokens      27 of 30 equal, 3 differ",
        "margins     of those that differ: 0.200 logits (median), 0.900 (largest)",
        "            of all steps: 2.000 logits (median)",
        "answers     1 of 2 the same to the end",
        "boxes       2 of 2 pages with the same number",
    ]
    assert len(list(table([page([], 10, answer=True, boxes=True)]))) == 4


@pytest.fixture(scope="module")
def rounded() -> Rounded:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(precision, "CEILING", TOKENS)
        return compare_page("synthetic:tiny", "cpu", PAGE)


def test_a_page_is_compared_along_its_float32_tokens(rounded: Rounded, tiny: Session[Any]) -> None:
    image = load_truth(PAGE).image
    read = tiny.run(image, max_new_tokens=TOKENS)
    assert (rounded.page, rounded.tokens) == (PAGE.stem, len(read.token_ids))
    best = along(tiny, image, read.token_ids).topk(2)
    assert best.indices[:, 0].tolist() == list(read.token_ids), "no choice was banned so early"
    assert rounded.margins == pytest.approx((best.values[:, 0] - best.values[:, 1]).tolist(), abs=1e-3)
    assert all(0 <= difference.step < rounded.tokens for difference in rounded.differences)
    assert all(difference.float32_margin >= 0 for difference in rounded.differences)


def along(session: Session[Any], image: Image.Image, tokens: Sequence[int]) -> Tensor:
    """Give the logits before each token in one pass over the prompt and all of them."""
    inputs = session.prepare(image)
    ids = torch.cat([inputs.input_ids, torch.tensor([tokens])], dim=1)
    mask = torch.cat([inputs.images_seq_mask, torch.zeros(1, len(tokens), dtype=torch.bool)], dim=1)
    state = session.prefill(replace(inputs, input_ids=ids, images_seq_mask=mask), all_logits=True)
    assert state.all_logits is not None
    return state.all_logits[0, inputs.prompt_tokens - 1 : -1]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "shipped", lambda subset: [PAGE])
    arguments = ["--checkpoint", "synthetic:tiny", "--subset", "dev-3", "--device", "cpu", "--out", str(tmp_path)]
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("synthetic:tiny on ")
    assert lines[0].endswith(": bfloat16 along the float32 tokens of 1 pages")
    assert lines[-1] == f"written     {tmp_path / 'precision.json'}"
    written = json.loads((tmp_path / "precision.json").read_text(encoding="utf-8"))
    assert [found["page"] for found in written["pages"]] == [PAGE.stem]
    assert written["pages"][0]["tokens"] == TOKENS == len(written["pages"][0]["margins"])
    assert len(written["sha256"]) == 64


def test_a_checkpoint_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--checkpoint", "synthetic:none"]) == 2
    assert "'synthetic:none' is no checkpoint" in capsys.readouterr().err
